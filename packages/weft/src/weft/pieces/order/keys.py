"""Orders by one number of each job: when it came, what it still needs, how late it would end."""

from __future__ import annotations

import numpy as np

from weft.core.plan.about import About, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Fairness, NeededKnowledge, Objective, declare
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.frozen import frozen
from weft.pieces.pack import start_newcomer
from weft.pieces.parts import Ranking
from weft.pieces.place.gangs import Placer

SHORT = declare(Objective.COMPLETION_TIME, NeededKnowledge.DURATIONS)
SHORTER = "a stream of shorter jobs"


class RestingOrder:
    """An order that changes nothing while all jobs run."""

    __slots__ = ()

    def settle(self, view: View, _place: Placer) -> Plan | None:
        """Return an empty plan where no job waits, and None where one does."""
        return None if view.table.waiting else Plan()


class Keyed:
    """An order by one number, without memory: jobs that fit beside all others are not ranked."""

    __slots__ = ()

    def settle(self, view: View, place: Placer) -> Plan | None:
        """Nothing to do where no job waits; a lone newcomer that fits starts."""
        return start_newcomer(view, place)


@frozen
class NoOrder:
    """No order: the size decides which jobs run."""

    about = About("none", "none")
    admits = "preempt"

    def settle(self, _view: View, _place: Placer) -> Plan | None:
        """Sizes are looked at also where no job waits."""
        return None

    def rank(self, view: View) -> Ranking:
        return Ranking(np.arange(len(view.table)))


@frozen
class ArrivalOrder(Keyed):
    """Jobs in the order they came."""

    about = About("fifo", "baseline", taxonomy=declare(Objective.IN_ORDER))
    admits = "in-turn"

    def rank(self, view: View) -> Ranking:
        """Rows are in order of submission already."""
        return Ranking(np.arange(len(view.table)))


@frozen
class RemainingTime(Keyed):
    """The least predicted time left first."""

    about = About("srtf", "Schrage 1968", needs=Needs.REMAINING, starves=SHORTER, taxonomy=SHORT)
    admits = "preempt"

    def rank(self, view: View) -> Ranking:
        left = view.remaining()
        return Ranking(key=left)


@frozen
class JobLength(RemainingTime):
    """The least predicted time left first; by default no job is stopped for it."""

    about = About("sjf", "Smith 1956", needs=Needs.REMAINING, starves=SHORTER, taxonomy=SHORT)
    admits = "backfill"


@frozen
class RemainingService(Keyed):
    """The fewest predicted GPU-seconds left first."""

    about = About(
        "srsf",
        "Gu et al. 2019",
        needs=Needs.REMAINING,
        starves="a stream of smaller jobs",
        taxonomy=SHORT,
    )
    admits = "preempt"

    def rank(self, view: View) -> Ranking:
        left = view.remaining() * view.table.need
        return Ranking(key=left)


@frozen
class Lateness(Keyed):
    """The job first whose completion would be latest against running alone all the time."""

    about = About(
        "ftf",
        "Mohan et al. 2022",
        needs=Needs.REMAINING,
        taxonomy=declare(Objective.FAIRNESS, NeededKnowledge.DURATIONS, Fairness.FINISH_TIME),
    )
    admits = "preempt"

    def rank(self, view: View) -> Ranking:
        """By predicted completion time over the time that execution alone takes."""
        late = lateness(view, view.remaining())
        return Ranking(key=-late)


@frozen
class Urgency(Keyed):
    """The highest priority that submitters gave first."""

    about = About("priority", "baseline", starves="a stream of jobs of higher priority")
    admits = "preempt"

    def rank(self, view: View) -> Ranking:
        """Rank by priority, then by order of submission."""
        key = -view.table.column(TableColumns.PRIORITY)
        return Ranking(key=key)


def lateness(view: View, left: Floats) -> Floats:
    """Time from submission to the end, if a job ran from now on, over the time it executes."""
    alone = view.ran() + left
    late = np.ones(len(left))  # where the length of a job is unknown
    known = np.isfinite(left) & (alone > 0.0)
    late[known] = (view.now - view.table.submitted + left)[known] / alone[known]
    return late
