"""The sweep of a job file: which parameters it has, and which values its jobs get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from weft.app.search.space import Range, Space, choose, lay_grid, write_value
from weft.core.model.search import SearchKind, SearchTerms
from weft.service.requests.fields import Number, Positive, RequestBody, Text, printable

MOST_OF_A_SWEEP = 1000
MOST_PARAMETERS = 64
TRIALS_AT_ONCE = 8  # of a search that learns from those before, without `max_parallel`

Parameter = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Value = bool | int | float | Text
Values = Annotated[list[Value], Field(min_length=1, max_length=MOST_OF_A_SWEEP, fail_fast=True)]
Grid = Annotated[dict[Parameter, Values], Field(max_length=MOST_PARAMETERS)]
Entry = Annotated[dict[Parameter, Value], Field(max_length=MOST_PARAMETERS)]
Entries = Annotated[list[Entry], Field(min_length=1, max_length=MOST_OF_A_SWEEP, fail_fast=True)]


Bounds = tuple[Number, Number]


class Between(RequestBody):
    """A range of numbers: `uniform`, `log` for those alike by their ratio, or `int`."""

    uniform: Bounds | None = None
    log: Bounds | None = None
    int: Bounds | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Between:
        given = {kind: bounds for kind, bounds in self if bounds is not None}
        if len(given) != 1:
            raise ValueError("a range is one of uniform, log and int: `{log: [1e-5, 1e-1]}`")
        ((kind, (low, high)),) = given.items()
        if low >= high:
            raise ValueError(f"{kind}: {low:g} is not below {high:g}")
        if kind == "log" and low <= 0:
            raise ValueError(f"log: {low:g} is not above 0")
        if kind == "int" and (low % 1 or high % 1):
            raise ValueError(f"int: {low:g} and {high:g} are not both whole numbers")
        return self

    def range(self) -> Range:
        """The range as a search knows it."""
        low, high = self.log or self.uniform or self.int or (0.0, 0.0)
        return Range(low, high, "log" if self.log else "int" if self.int else "uniform")


SpaceFields = Annotated[dict[Parameter, Values | Between], Field(max_length=MOST_PARAMETERS)]
MetricName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(printable)]
OF_SEARCH = ("search", "trials", "metric", "goal", "seed", "first_step", "eta")


class Sweep(RequestBody):
    """One job for each combination of the values in `grid`, for each entry of `list`, or `trials`.

    These are points of `space`, as `search` chooses them: `random`; `grid`, ranges evenly divided;
    `asha`, at random, where of `eta` trials that come to step `first_step`, to `eta` times as many
    and so on only one goes on; or `optuna`, by what earlier ones reached. `metric` says which of
    the values that jobs report is to be least, or most with `goal: max`.
    """

    grid: Grid | None = None
    list: Entries | None = None
    space: SpaceFields | None = None
    search: Literal["random", "grid", "asha", "optuna"] = "random"
    trials: Annotated[int, Field(ge=1, le=MOST_OF_A_SWEEP, strict=True)] | None = None
    metric: MetricName | None = None
    goal: Literal["min", "max"] = "min"
    seed: Annotated[int, Field(ge=0, le=2**31, strict=True)] = 0
    first_step: Positive = 1.0
    eta: Annotated[int, Field(ge=2, le=100, strict=True)] = 3

    @model_validator(mode="after")
    def _counted(self) -> Sweep:
        if sum(map(bool, (self.grid, self.list, self.space))) != 1:
            raise ValueError("a sweep has a grid or a list of parameters, or a space, one of them")
        if self.space:
            return self._searched(self.space)
        if foreign := [name for name in OF_SEARCH if name in self.model_fields_set]:
            raise ValueError(f"{foreign[0]} is for a sweep with a space; this one has none")
        count = prod(map(len, (self.grid or {}).values())) * len(self.list or (0,))
        if count > MOST_OF_A_SWEEP:
            raise ValueError(f"{count} jobs are too many; a sweep has at most {MOST_OF_A_SWEEP}")
        return self

    def _searched(self, space: SpaceFields) -> Sweep:
        if self.trials is None:
            raise ValueError("trials: how many jobs may this sweep have?")
        if self.search in ("asha", "optuna") and self.metric is None:
            raise ValueError(f"metric: which reported value does {self.search} compare trials by?")
        if self.search == "grid" and not next(lay_grid(space_of(space), self.trials), None):
            raise ValueError(f"the lists alone have more combinations than {self.trials} trials")
        return self

    def terms(self, body: str) -> SearchTerms:
        """The terms of its search; `body` is the job file where that is needed later."""
        return SearchTerms(
            SearchKind(self.search),
            metric=self.metric or "",
            maximize=self.goal == "max",
            trials=self.trials or 0,
            first=self.first_step,
            eta=self.eta,
            body=body,
        )


def space_of(space: SpaceFields) -> Space:
    """The space as a search knows it."""
    return {
        name: values.range() if isinstance(values, Between) else values
        for name, values in space.items()
    }


def combinations(sweep: Sweep, at_once: int | None = None) -> Iterator[dict[str, str]]:
    """The parameters of each job that is known now, the last of a grid changing fastest.

    A search that learns from those before begins with as many as run `at_once`.
    """
    if sweep.space:
        known = sweep.trials or 0
        if sweep.search == "optuna":
            known = min(known, at_once or TRIALS_AT_ONCE)
        chosen = choose(space_of(sweep.space), sweep.search, known, sweep.seed)
        yield from map(write_values, chosen)
    elif sweep.list:
        yield from map(write_values, sweep.list)
    else:
        grid = sweep.grid or {}
        for values in product(*grid.values()):
            yield dict(zip(grid, map(write_value, values), strict=True))


def write_values(values: Mapping[str, Value]) -> dict[str, str]:
    """Parameters as texts."""
    return {name: write_value(value) for name, value in values.items()}
