"""The next trial by a sampler of Optuna, from all that trials before it reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from weft.app.search.space import Range, Space, Value, write_value
from weft.core.errors import InvalidConfig, WeftError
from weft.frozen import frozen


@frozen
class PastTrial:
    """A trial of before: its parameters as texts, and the best value that it reached.

    Without a value it runs, or it `ended` without one.
    """

    parameters: dict[str, str]
    value: float | None
    ended: bool


def check_installed() -> None:
    """Refuse a search that this environment cannot make."""
    if find_spec("optuna") is None:
        raise InvalidConfig(
            "sweep.search: optuna is not installed where the service runs",
            hint="pip install optuna there, or search: asha",
        )


def sample(
    space: Space, past: Iterable[PastTrial], maximize: bool, seed: int, _report: object = None
) -> dict[str, Value]:
    """Ask, as work aside; InvalidConfig where that fails, for it would fail again."""
    try:
        return ask(space, past, maximize=maximize, seed=seed)
    except (WeftError, MemoryError):
        raise
    except Exception as error:  # not its text: what a job file should not have held is in it
        raise InvalidConfig(f"its sampler failed: {type(error).__name__}") from error


def ask(space: Space, past: Iterable[PastTrial], *, maximize: bool, seed: int) -> dict[str, Value]:
    """The parameters of the next trial: the same for the same history."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    direction = "maximize" if maximize else "minimize"
    history = [*past]
    sampler = optuna.samplers.TPESampler(seed=seed + len(history), n_startup_trials=8)
    study = optuna.create_study(sampler=sampler, direction=direction)
    shapes = {name: _distribution(optuna.distributions, values) for name, values in space.items()}
    for trial in history:
        study.add_trial(_trial(optuna.trial, space, shapes, trial))
    chosen = study.ask(shapes).params
    return {name: _rounded(values, chosen[name]) for name, values in space.items()}


def _distribution(kinds: Any, values: Any) -> Any:
    if not isinstance(values, Range):
        return kinds.CategoricalDistribution(tuple(values))
    if values.kind == "int":
        return kinds.IntDistribution(int(values.low), int(values.high))
    return kinds.FloatDistribution(values.low, values.high, log=values.kind == "log")


def _trial(kinds: Any, space: Space, shapes: Any, trial: PastTrial) -> Any:
    states = kinds.TrialState
    state = states.RUNNING
    if trial.ended:
        state = states.FAIL if trial.value is None else states.COMPLETE
    return kinds.create_trial(
        params={name: _read(values, trial.parameters[name]) for name, values in space.items()},
        distributions=shapes,
        value=trial.value if state is states.COMPLETE else None,
        state=state,
    )


def _read(values: Sequence[Value] | Range, text: str) -> Value:
    """The value that a job's parameter was written from."""
    if isinstance(values, Range):
        number = min(max(float(text), values.low), values.high)
        return int(number) if values.kind == "int" else number
    return next(value for value in values if write_value(value) == text)


def _rounded(values: Sequence[Value] | Range, value: Value) -> Value:
    return values.rounded(float(value)) if isinstance(values, Range) else value
