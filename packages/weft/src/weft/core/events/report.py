"""Reports of running jobs about themselves: one vocabulary for real and simulated trainings.

A real job's report comes over the wire as plain values (`weft.base.messages`), a simulated one's
from its behaviour; beliefs, the ledger and the log read them alike. A field that is None was not
told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

MOST = 1e15
MOST_USER, LONGEST_NAME = 64, 64
USER = "user."
# How logs of earlier versions called things; their `accumulate` counted from 0.
OLD_NAMES = {"local": "per_gpu", "sqr": "grad_sqr", "var": "grad_var", "speed": "updates_per_s"}


class NoMetrics(Mapping[str, float]):
    """An empty mapping that never changes, so that all reports may share it."""

    __slots__ = ()

    def __getitem__(self, name: str) -> float:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0


NO_METRICS = NoMetrics()


@dataclass(frozen=True, kw_only=True)
class Report:
    """Measurements of one attempt, medians where a window is meant.

    Time of a step, in seconds:

    - `step_s`: one update of the parameters, data wait, accumulation and synchronisation included
    - `grad_s`: forward and backward of one micro-batch on one GPU
    - `last_s`: the micro-batch that synchronises; of a step without accumulation all of it
    - `sync_s`, `data_s`, `token_s`: of a step, waiting for gradients, for data, for a stage token

    Batch:

    - `batch`: samples of an update over all GPUs, `per_gpu` x `accumulate` x `replicas`
    - `per_gpu`: samples of one micro-batch on one GPU
    - `accumulate`: micro-batches of an update, from 1
    - `replicas`, `nodes`: copies of the model that train together, and nodes they are on
    - `lr_factor`: what the learning rate is multiplied by for this batch
    - `mem_gb`: peak device memory of one GPU, `held_gb` what is held of it now

    Gradients:

    - `grad_sqr`, `grad_var`: squared norm of the true gradient, and variance of the measured one at
      the initial batch size
    - `noise`: gradient noise scale, in samples
    - `gain`: updates of the initial batch size that one of this batch is worth

    How far it has come:

    - `steps`, `samples`, `epoch`: updates, samples and whole epochs since the job began
    - `total_steps`: updates of the whole training, as its progress bar or framework tells
    - `progress`: part of the whole training, 0 to 1
    - `work`: samples of the whole training, as declared: epochs times the data set
    - `loss`: of the last batch, or after `iteration` iterations where the job counts its loss by
      those; then `loss_change` and `loss_change_most` are the changes in the last iteration and the
      largest in any, `iteration_s` the seconds of an iteration on the `gpus` it holds

    Shape and speed:

    - `workers`, `servers`, `updates_per_s`: tasks of a job with parameter servers, and its speed
    - `pace`: speed beside its neighbours, as a part of that alone
    - `goodput`: useful samples per second, where the job knows better than `gain` tells

    Seen from outside, over the last second:

    - `sm`: part of the device's time in which a kernel of the job ran
    - `cpus`: CPU cores that were busy for it
    - `read_mb_s`, `write_mb_s`: what it moved from and to disks
    - `power_w`, `temp_c`: watts of all its devices, and degrees Celsius of the hottest
    - `device_errors`: uncorrected memory errors of its devices since they were reset

    `user` is what the script measures of its own, by name.
    """

    step_s: float | None = None
    grad_s: float | None = None
    last_s: float | None = None
    sync_s: float | None = None
    data_s: float | None = None
    token_s: float | None = None
    batch: float | None = None
    per_gpu: float | None = None
    accumulate: float | None = None
    replicas: float | None = None
    nodes: float | None = None
    lr_factor: float | None = None
    mem_gb: float | None = None
    held_gb: float | None = None
    grad_sqr: float | None = None
    grad_var: float | None = None
    noise: float | None = None
    gain: float | None = None
    steps: float | None = None
    total_steps: float | None = None
    samples: float | None = None
    epoch: float | None = None
    progress: float | None = None
    work: float | None = None
    loss: float | None = None
    iteration: float | None = None
    loss_change: float | None = None
    loss_change_most: float | None = None
    iteration_s: float | None = None
    gpus: float | None = None
    workers: float | None = None
    servers: float | None = None
    updates_per_s: float | None = None
    pace: float | None = None
    goodput: float | None = None
    sm: float | None = None
    cpus: float | None = None
    read_mb_s: float | None = None
    write_mb_s: float | None = None
    power_w: float | None = None
    temp_c: float | None = None
    device_errors: float | None = None
    user: Mapping[str, float] = NO_METRICS

    if not TYPE_CHECKING:
        # Simulations make a report a round and job, with few of the fields: those that are not
        # told stay the class's. Setting all of them cost Sia's simulation a twentieth.
        def __init__(self, **measured: Any) -> None:
            if not FIELDS.issuperset(measured):
                raise TypeError(f"a report has no field {min(measured.keys() - FIELDS)!r}")
            object.__setattr__(self, "__dict__", measured)

    @classmethod
    def of(cls, measured: dict[str, Any]) -> Report:
        """A report of fields and nothing else, which is not checked; it keeps the dictionary."""
        report = object.__new__(cls)
        object.__setattr__(report, "__dict__", measured)
        return report

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Report:
        """A report from untrusted values; ValueError names the first that cannot be right.

        Names are those of the fields, and `user.NAME` for the script's own.
        """
        numbers: dict[str, Any] = {}
        user: dict[str, float] = {}
        for name, value in values.items():
            number = _check_value(name, value)
            if name.startswith(USER):
                user[name.removeprefix(USER)] = number
            else:
                numbers[name] = number
        if user:
            numbers["user"] = user
        return cls(**numbers)

    @classmethod
    def read(cls, values: Mapping[str, object], *, old: bool = False) -> Report:
        """A report from a log: what is unknown or cannot be right is left out.

        `old` values are as earlier versions wrote them.
        """
        return cls.validate(dict(_rename_old(values)) if old else values)[0]

    @classmethod
    def validate(cls, values: Mapping[str, object]) -> tuple[Report, tuple[str, ...]]:
        """A report of those untrusted values that can be right, and what is wrong with the rest.

        A script's own numbers beyond the first `MOST_USER` are left out as well.
        """
        numbers: dict[str, object] = {}
        wrong: list[str] = []
        own = 0
        for name, value in values.items():
            try:
                number = _check_value(name, value)
            except ValueError as error:
                wrong.append(str(error))
                continue
            own += name.startswith(USER)
            if own > MOST_USER and name.startswith(USER):
                wrong.append(f"{name} is one of more than {MOST_USER} numbers of its own")
            else:
                numbers[name] = number
        return cls.parse(numbers), tuple(wrong)

    @property
    def left_s(self) -> float | None:
        """Seconds to the end of the training at its pace; None where steps do not tell."""
        if not self.step_s or self.total_steps is None or self.steps is None:
            return None
        return max(self.total_steps - self.steps, 0.0) * self.step_s

    @property
    def trains(self) -> bool:
        """True if it tells about the job's own work, not only about what is seen from outside.

        One without any value is of a job that reports by itself and has nothing to say yet.
        """
        given = False
        for name, value in vars(self).items():
            if value is not None:
                if name not in _FROM_OUTSIDE:
                    return True
                given = True
        return not given

    def __repr__(self) -> str:
        return f"Report({', '.join(f'{name}={value!r}' for name, value in self.values().items())})"

    def values(self) -> dict[str, float]:
        every = ((name, getattr(self, name)) for name in NAMES)
        known = {name: value for name, value in every if value is not None}
        return {**known, **{f"{USER}{name}": value for name, value in self.user.items()}}


FIELDS = frozenset(f.name for f in fields(Report))
NAMES = tuple(f.name for f in fields(Report) if f.name != "user")
NO_REPORT = Report()
_FROM_OUTSIDE = frozenset(
    (
        *("mem_gb", "held_gb", "sm", "cpus", "read_mb_s", "write_mb_s"),
        *("power_w", "temp_c", "device_errors"),
    )
)
# Least and most of each number; whatever is not here is 0 or more.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "loss": (-MOST, MOST),
    **dict.fromkeys(("progress", "sm"), (0.0, 1.0)),
    "epoch": (0.0, 1e6),
    "batch": (1.0, 1e12),
    **dict.fromkeys(("per_gpu", "accumulate"), (1.0, 1e9)),
    **dict.fromkeys(("replicas", "nodes"), (1.0, 1e6)),
    **dict.fromkeys(("workers", "servers", "gpus"), (0.0, 1e6)),
}


def _check_value(name: str, value: object) -> float:
    if not isinstance(name, str) or len(name) > LONGEST_NAME + len(USER):
        raise ValueError(f"{str(name)[:LONGEST_NAME]!r} is not the name of a number")
    own = name.startswith(USER)
    if not own and name not in NAMES:
        raise ValueError(f"a report has no field {name!r}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is {_shown(value)}, expected a number")  # noqa: TRY004 - one kind
    least, most = (-MOST, MOST) if own else BOUNDS.get(name, (0.0, MOST))
    if not least <= value <= most:  # no comparison with nan is true
        raise ValueError(f"{name} is {_shown(value)}, expected {least:g} to {most:g}")
    return float(value)


def _shown(value: object) -> str:
    """Short: it may be anything."""
    if isinstance(value, int) and value.bit_length() > 99:
        return "too long to show"
    return repr(value)[:40]


def _rename_old(values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if name == "accumulate" and isinstance(value, (int, float)):
            value = value + 1.0
        yield OLD_NAMES.get(name, name), value
