"""The decisions of a recorded run, made again: same policy, same events, same times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from weft.core.asleep.rules import rules_of
from weft.core.events.event import Decided, Event, PolicyChanged, Woken
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster
from weft.core.scheduler import Scheduler
from weft.core.stops import Rung
from weft.frozen import frozen
from weft.runtime.deciding.live_policy import live_policy, propose
from weft.runtime.recovery.recover import FIFO, thaw_state
from weft.runtime.recovery.snapshot import thaw


@frozen
class ReplayedPolicy:
    """One turn of the scheduler: what was decided then and what is now; None: nothing."""

    at: float
    then: Decided | None
    now: Decided | None


def decide_again(
    log: Iterable[tuple[int, float, Event]],
    *,
    knowledge: Knowledge | None = None,
    base: bytes | None = None,
) -> list[ReplayedPolicy]:
    """Feed a log through a fresh scheduler, turn by turn; one that was cut goes on from its `base`.

    It decides where the run did: what a busy service put off is put off again, and a service that
    came back late for a round decided it then. All else must be what the run had when it began.
    """
    noted: list[Event] = []
    log = list(log)
    if knowledge is not None:
        knowledge.fit_aside()  # as in the run: models are in its log
    scheduler = Scheduler(
        live_policy(FIFO),
        Cluster(()),
        knowledge=knowledge,
        journal=lambda _, event: noted.append(event),
        stops=rules_of(_find_rungs(log)),
    )
    if base is not None:
        scheduler.use(live_policy(thaw_state(thaw(base), 0, scheduler).policy))
    turns: list[ReplayedPolicy] = []
    for at, rows in groupby(log, key=lambda row: row[1]):
        events = [event for _, _, event in rows]
        then = _decision(events)
        for event in events:
            if isinstance(event, PolicyChanged):
                scheduler.use(live_policy(event.policy))
            elif isinstance(event, Woken):
                scheduler.put_off(at)  # what was put off then is due, whatever the pace is now
        noted.clear()
        scheduler.apply_events(at, [event for event in events if event is not then])
        if then is not None:
            _decide_as(scheduler, at, then)
        turns.append(ReplayedPolicy(at, then, _decision(noted)))
    return turns


def _decide_as(scheduler: Scheduler, at: float, then: Decided) -> None:
    """Decide as it was decided then; when a policy that failed is asked again is not its doing."""
    if not then.by:
        scheduler.adopt(at, propose(scheduler, at))
        return
    plan = scheduler.propose(at, live_policy(then.by))
    scheduler.adopt(at, replace(plan, wake_at=then.wake_at), then.by)


def _decision(events: Iterable[Event]) -> Decided | None:
    return next((event for event in events if isinstance(event, Decided)), None)


def _find_rungs(log: Iterable[tuple[int, float, Event]]) -> frozenset[Rung]:
    """By which rungs the run put jobs to sleep: as much as its engine could do, and was used."""
    decided = (event for _, _, event in log if isinstance(event, Decided))
    return frozenset(rung for event in decided for rung in event.sleeps.values())
