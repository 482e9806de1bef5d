"""The parts of a composed policy: an order, a size, a place, admission and sharing.

Every part is a frozen dataclass: its fields are its parameters, and it keeps nothing between
decisions. What an order or a size wants to remember travels in the plan's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from weft.core.model.job import Allocation, Config, Job
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.pieces.pack import running_after
from weft.pieces.place.gangs import Placer


class NextDecision(NamedTuple):
    """The time to decide again although nothing happens, and the memory until then."""

    wake_at: float | None = None
    memory: object = None


@frozen
class Ranking:
    """The order of jobs: `order` are all rows; without it, rows are ranked by `key`.

    Both are there where `key` is most of the order, but not all. `later` is what follows from it,
    or a function that takes the rows that run after the decision.
    """

    order: Rows | None = None
    key: Floats | None = None
    later: NextDecision | Callable[[Bools], NextDecision] | None = None
    _sorted: list[Rows] = field(default_factory=list, init=False, compare=False)

    @property
    def rows(self) -> Rows:
        """All of them in order; sorted when first needed."""
        if self.order is not None:
            return self.order
        if not self._sorted:
            assert self.key is not None
            self._sorted.append(np.argsort(self.key, kind="stable"))
        return self._sorted[0]

    @property
    def lone_key(self) -> Floats | None:
        """The key where it says everything."""
        return self.key if self.order is None else None


@frozen
class Sizes:
    """Kind and number of GPUs by row, for those that get any; and what to remember."""

    wanted: Mapping[int, Config] = field(default_factory=dict)
    memory: object = None


class Part(Protocol):
    """The declarations that all parts have."""

    @property
    def about(self) -> About:
        """Name, origin, what it reads and sets, and what it brings to a composition."""
        ...


class Order(Part, Protocol):
    """Ranks jobs. `admits` names how the policy that it comes from starts jobs."""

    @property
    def admits(self) -> str:
        """The admission that is meant where none is named."""
        ...

    def settle(self, view: View, place: Placer) -> Plan | None:
        """The decision where no order matters, since no job has to wait; None where one does."""
        ...

    def rank(self, view: View) -> Ranking: ...


class Size(Part, Protocol):
    """Chooses how many GPUs of which kind. `stops` says that an admitted job may still get none."""

    @property
    def stops(self) -> bool:
        """True if a running job may lose all its GPUs."""
        ...

    def choose_sizes(self, view: View) -> Sizes:
        """Sizes for all rows of the view together, on all that is free or theirs."""
        ...


class Place(Part, Protocol):
    """Chooses devices. `moves` says that running jobs may be moved to make room.

    `reads_view` says that `placer` reads more than the job and what is free.
    """

    reads_view: ClassVar[bool]

    @property
    def moves(self) -> bool:
        """True if jobs are placed together, and some again."""
        ...

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Devices for one job as it asks for them; None if it must wait. Nothing is taken."""
        ...

    def placer(self, view: View) -> Placer:
        """`place` for the jobs of one decision; it may read the view."""
        ...

    def assign(self, view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation | None]:
        """The changes if the rows of `wanted`, and no others, hold these sizes."""
        ...


class Admit(Part, Protocol):
    """Chooses jobs that may start. `stops`: running jobs make room for those before them."""

    @property
    def stops(self) -> bool:
        """True if a running job may be stopped."""
        ...

    @property
    def overtakes(self) -> bool:
        """True if a job that does not fit lets those behind it start."""
        ...

    def start(self, view: View, ranking: Ranking, place: Placer) -> Plan:
        """Start the first of the ranking in the sizes they ask for."""
        ...

    def among(self, view: View, rows: Rows) -> Bools:
        """Rows of the view that take part where sizes are chosen for them."""
        ...


class Share(Part, Protocol):
    """Chooses jobs that use a device together. `with_stops` is its admission; None: any."""

    @property
    def with_stops(self) -> bool | None:
        """True if admission must stop jobs, False if it must not; None for either."""
        ...

    def start(self, view: View, ranking: Ranking, admit: Admit, place: Placer) -> Plan:
        """Start the first, alone or together."""
        ...


def run_order(view: View, order: Order, admit: Admit, place: Placer) -> Plan:
    """Rank, start the first, and let the order say when to look again."""
    if (plan := order.settle(view, place)) is not None:
        return plan
    ranking = order.rank(view)
    return follow(view, ranking, admit.start(view, ranking, place))


def follow(view: View, ranking: Ranking, plan: Plan) -> Plan:
    """The plan with what its order wants to remember."""
    later = ranking.later
    if later is None:
        return plan
    if not isinstance(later, NextDecision):
        later = later(running_after(view, plan))
    return Plan(plan.changes, wake_at=later.wake_at, memory=later.memory)
