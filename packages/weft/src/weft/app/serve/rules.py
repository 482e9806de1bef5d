"""The rules that a service puts around every policy: quotas, lending, reservations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from weft.app.serve.private_file import read_private
from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model.job import Job, JobId, NodeId
from weft.core.spec.parameters import parameters
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import find
from weft.core.state.state import State
from weft.frozen import frozen
from weft.stack.layers import BY_NAME, in_order
from weft.stack.windows import read_window

STEADY, QUOTA, LEND, RESERVE = PartSpec("steady"), "quota", "lend", "reserve"
OWN_WRAPPERS = tuple(name for name in BY_NAME if name != STEADY.name)


@frozen
class Quotas:
    """GPUs a tenant may hold at once, in all (`nlp`) or of a kind (`nlp@a100`), and weights.

    `guaranteed` is how many GPUs its jobs of that priority may ask for together. `own` are GPUs of
    tenants and groups that are lent while idle and taken back when needed, `parents` the group of a
    tenant or group; `half_life_s` and `min_run_s` are None unless chosen. `windows` are devices
    that are kept, by name, as `weft.stack.windows` writes them.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    guaranteed: Mapping[str, float] = field(default_factory=dict)
    own: Mapping[str, float] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    half_life_s: float | None = None
    min_run_s: float | None = None
    windows: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: PartSpec) -> Quotas:
        """The rules that `around` put around a policy."""
        params = {wrapper.name: wrapper.params for wrapper in policy.wrappers}
        limits, lent = params.get(QUOTA, {}), params.get(LEND, {})
        return cls(
            dict(limits.get("limits", {})),
            dict(limits.get("weights", {}) or lent.get("weights", {})),
            own=dict(lent.get("own", {})),
            parents=dict(lent.get("parents", {})),
            half_life_s=lent.get("half_life_s"),
            min_run_s=lent.get("min_run_s"),
            windows=dict(params.get(RESERVE, {}).get("windows", {})),
        )

    def wrap_policy(self, policy: PartSpec) -> PartSpec:
        """The policy with these rules and those of single jobs around it."""
        own = any(wrapper.name == STEADY.name for wrapper in policy.wrappers)
        names = ["skip_failing", "promise", "easy", "priority", "no_preempt"]
        names += [] if own else ["steady"]
        jobs: dict[str, dict[str, Any]] = {name: {} for name in names}
        return policy.inside(*in_order({**jobs, **self._tenants()}))

    def _tenants(self) -> dict[str, dict[str, Any]]:
        lends = bool(self.own)
        weights = {} if lends else self.weights  # of what is lent
        parts: list[tuple[str, dict[str, Mapping[str, Any]]]] = [
            (RESERVE, {"windows": self.windows}),
            (LEND, {"own": self.own, "parents": self.parents, "weights": self.weights}),
            (QUOTA, {"limits": self.limits, "weights": weights}),
        ]
        needed: dict[str, dict[str, Any]] = {}
        for name, given in parts:
            rules: dict[str, Any] = {k: dict(sorted(v.items())) for k, v in given.items() if v}
            if name == LEND and lends:
                times = {"half_life_s": self.half_life_s, "min_run_s": self.min_run_s}
                rules |= {k: v for k, v in times.items() if v is not None}
            if rules and (name != LEND or lends):
                needed[name] = rules
        return needed

    def allow(
        self, job: Job, device: tuple[NodeId, int], beside: Job, state: State, now: float
    ) -> bool:
        """True if a job of one GPU could have this one in the place of the job that is there."""
        node, gpu = device
        for name, text in self.windows.items():
            window = read_window(name, text)
            there = window.mask(node, gpu + 1) >> gpu & 1
            if there and now < window.end and not window.admits(job, now):
                return False
        kind = state.cluster.nodes[state.cluster.index[node]].kind
        rules = {"": self.limits.get(job.tenant), kind: self.limits.get(f"{job.tenant}@{kind}")}
        return all(
            most is None or _held(state, job.tenant, of, beside.id) + 1.0 <= most
            for of, most in rules.items()
        )

    def with_window(self, name: str, text: str) -> Quotas:
        """The quotas with one more window, or another one of this name."""
        return replace(self, windows={**self.windows, name: text})

    def without_windows(self, *names: str) -> Quotas:
        """The quotas without some windows."""
        kept = {name: text for name, text in self.windows.items() if name not in names}
        return replace(self, windows=kept)


def _held(state: State, tenant: str, kind: str, without: JobId) -> float:
    """GPUs of a tenant, of one kind or all, but those of one job."""
    jobs = zip(state.table.jobs, state.table.allocations, strict=True)
    mine = [on for job, on in jobs if on and job.tenant == tenant and job.id != without]
    chosen = [on for on in mine if not kind or state.cluster.kind_of(on) == kind]
    return sum(on.counted_gpus for on in chosen)


def without_wrappers(policy: PartSpec) -> PartSpec:
    """The policy as a person named it, without what the service puts around it."""
    inner = policy.without(*OWN_WRAPPERS)
    return inner.without(STEADY.name) if inner.wrappers[:1] == (STEADY,) else inner


def read_quotas(path: Path) -> Quotas:
    """The rules on disk; none where there is no file."""
    stored = read_private(path)
    if stored is None:
        return Quotas()
    try:
        tables = ("guaranteed", "own", "parents", "windows")
        return Quotas(
            dict(stored["limits"]),
            dict(stored["weights"]),
            **{name: dict(stored.get(name, {})) for name in tables},
            half_life_s=stored.get("half_life_s"),
            min_run_s=stored.get("min_run_s"),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidConfig(f"{path} does not hold quotas: {error!r}") from error


def lending_times(half_life_s: float | None, min_run_s: float | None) -> tuple[float, float]:
    """Return both as they hold, where None stands for what the wrapper has by itself."""
    usual = {name: value for name, (_, value) in parameters(find("wrapper", LEND)).items()}
    return (
        usual["half_life_s"] if half_life_s is None else half_life_s,
        usual["min_run_s"] if min_run_s is None else min_run_s,
    )


def read_lending(
    own: Iterable[str], parents: Iterable[str], half_life_h: float | None, min_run_s: float | None
) -> dict[str, Any]:
    """Rules as options say them, `TENANT=GPUS` and `TENANT=GROUP`; only those that are given."""
    lending: dict[str, Any] = {}
    if quotas := dict(_pair("--own", text) for text in own):
        try:
            lending["own"] = {who: float(gpus) for who, gpus in quotas.items()}
        except ValueError as error:
            raise InvalidConfig(f"--own: {error}", hint="such as nlp=8") from error
    if groups := dict(_pair("--parent", text) for text in parents):
        lending["parents"] = groups
    if half_life_h is not None:
        lending["half_life_s"] = 3600.0 * half_life_h
    if min_run_s is not None:
        lending["min_run_s"] = min_run_s
    return lending


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise InvalidConfig(f"{option} {text!r} is not NAME=VALUE", hint="such as nlp=8")
    return name, value


@frozen
class TenantLimits:
    """Limits of each tenant; 0 is none. Admins have none: they could change them anyway.

    `rate` is requests per second, and `burst` how many may come at once; long answers count as
    several. `streams` are open event
    streams and followed logs, `jobs` those that have not ended, `gpus` what one job may ask for.
    `header_kib` is the longest header of a request and `body_mib` its longest body; `connections`
    are open ones of everyone together, and `header_s` and `body_s` how long a request may take to
    arrive.
    """

    rate: float = 50.0
    burst: float = 100.0
    streams: float = 50.0
    jobs: float = 10_000.0
    gpus: float = 0.0
    header_kib: float = 16.0
    body_mib: float = 2.0
    connections: float = 4_096.0
    header_s: float = 20.0
    body_s: float = 30.0


def read_limits(pairs: Sequence[str]) -> TenantLimits:
    """Limits from `NAME=NUMBER`; InvalidConfig names what cannot be read."""
    known = [field.name for field in fields(TenantLimits)]
    limits: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise InvalidConfig(
                f"--limit {pair!r} is not NAME=NUMBER{did_you_mean(name, known)}",
                hint=f"limits are {', '.join(known)}",
            )
        try:
            limits[name] = float(text)
        except ValueError as error:
            raise InvalidConfig(f"--limit {pair!r}: {text!r} is not a number") from error
        if not 0.0 <= limits[name] < 1e12:
            raise InvalidConfig(f"--limit {pair!r} is out of range", hint="0 is no limit")
    return TenantLimits(**limits)
