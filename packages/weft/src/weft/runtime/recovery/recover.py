"""After a restart: from the log to a scheduler, and from there to what really runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from weft.base.garbage import no_collection
from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig, WeftError
from weft.core.events import event as facts
from weft.core.events.actions import OrderMemory, Resize, Resume, Sleep, Start, Stop
from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId, Stage
from weft.core.protocols import Store
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.core.state.cells import TableColumns
from weft.core.state.ended_jobs import EndedJobs
from weft.core.state.saved_state import SavedPromise, SavedScheduler, SavedState
from weft.core.state.state import State
from weft.runtime.records.job_records import JobRecord, JobRecords, row_of
from weft.runtime.records.ledger import Ledger
from weft.runtime.recovery.snapshot import (
    DamagedSnapshot,
    FrozenState,
    ThawedState,
    copy_values,
    thaw,
)

log = logging.getLogger(__name__)

READ_AT_ONCE = 10_000
PUT_AT_ONCE = 2_000  # ended jobs
MOST_SET_ASIDE = 100
SHOWN = 100_000
DAMAGED = (
    "`weft state check` says more; `weft state restore` brings a backup back, "
    "`weft state accept-loss` goes on without what is missing"
)
Attempt = tuple[JobId, int]
FIFO = PartSpec("fifo")  # decides until a log or a person names another


# After these tenants may ask for more or less, or there is more or less to divide.
DEMANDS = (
    *(
        facts.Submitted,
        facts.Finished,
        facts.Failed,
        facts.Cancelled,
        facts.Suspended,
        facts.Resumed,
    ),
    *(facts.NodeUp, facts.NodeDown, facts.PolicyChanged),
)


@dataclass(slots=True)
class Recovered:
    """All that the log says, up to event `seq` at time `at`; read from a snapshot of `saved` on."""

    scheduler: Scheduler
    ledger: Ledger = field(default_factory=Ledger)
    drained: set[NodeId] = field(default_factory=set)
    policy: PartSpec = FIFO
    given_up: facts.PolicyChanged | None = None
    seq: int = 0
    at: float = 0.0
    saved: int = 0

    def fold(self, seq: int, at: float, event: facts.Event) -> None:
        """Take in the next event of the log."""
        if at > self.at:
            self.release_ended()  # all events of a turn have one time
        self.scheduler.apply_event(at, event)
        self.note(seq, at, event)

    def note(self, seq: int, at: float, event: facts.Event) -> None:  # noqa: C901 - one case an event
        """Note an event that the scheduler has taken in already.

        With those that follow it: `settle` once all of a turn are noted.
        """
        self.ledger.history.fold(at, event)
        self.ledger.entitlement.pass_to(at, event)
        self.ledger.fold(at, event)
        if isinstance(event, DEMANDS) or (isinstance(event, facts.Decided) and event.rejected):
            self.ledger.entitle(at, float(self.scheduler.state.cluster.gpus))
        match event:
            case facts.PolicyChanged(policy, instead_of):
                self.policy = policy
                self.given_up = event if instead_of else None
            case facts.NodeDown(node, drained):
                if drained:
                    self.drained.add(node)
            case facts.NodeUp(node):
                self.drained.discard(node.id)
            case facts.Submitted() | facts.Decided() | facts.Woken() | facts.LoanRecalled():
                pass  # the scheduler and the ledger keep all that these say
            case facts.Suspended() | facts.Resumed() | facts.PriorityChanged():
                pass
            case (
                facts.Cancelled()
                | facts.Started()
                | facts.StartFailed()
                | facts.Stopped()
                | facts.Finished()
                | facts.Failed()
            ):
                pass
            case (
                facts.Reported()
                | facts.Measured()
                | facts.Saved()
                | facts.Noticed()
                | facts.DeadlineMissed()
                | facts.Resizable()
            ):
                pass
            case (
                facts.Resized()
                | facts.ResizeFailed()
                | facts.StartedAhead()
                | facts.Slept()
                | facts.SleepFailed()
                | facts.Awoke()
                | facts.Observed()
                | facts.Refitted()
                | facts.Foretold()
            ):
                pass
            case _:
                assert_never(event)
        self.seq, self.at = seq, at

    def release_ended(self) -> None:
        """After a turn: let the store take jobs that have ended and left.

        Within one the scheduler may know already that an attempt has left of which the ledger is
        to note the start; a record that the store may take must not change any more.
        """
        if self.ledger.jobs.leaving:
            self.ledger.release_ended(self.scheduler.state.releasing.is_leaving)

    def begins(self, policy: PartSpec | None) -> facts.PolicyChanged:
        """The event to go on with: `policy`, or the last one if that is None."""
        if policy is None and self.given_up is not None:
            return self.given_up
        return facts.PolicyChanged(policy or self.policy)

    def node_words(self) -> dict[NodeId, str]:
        """`up` or `drained` of every node that is either."""
        up = self.scheduler.state.cluster.index
        return {**dict.fromkeys(self.drained, "drained"), **dict.fromkeys(up, "up")}

    def attempts(self) -> set[Attempt]:
        """Attempts that may have processes: promised devices, leaving them, or asleep."""
        state = self.scheduler.state
        table = state.table
        held = {
            (job.id, int(table.get(row, TableColumns.ATTEMPT)))
            for row, job in enumerate(table.jobs)
            if table.allocations[row] is not None
        }
        wishes = wishes_of(state)
        return held | {(w.job, w.attempt) for w in wishes if isinstance(w, (Stop, Sleep))}


def recover(store: Store, make: Callable[[], Scheduler]) -> Recovered:
    """Everything that the store knows: its snapshot if that can be read, and every event since.

    An event that cannot be folded is set aside, and everything is read again without it.
    """
    for _ in range(MOST_SET_ASIDE):
        try:
            with no_collection():
                return _read(store, make)
        except _CannotFold as bad:
            store.set_aside(bad.seq, f"it does not follow from the events before it: {bad}")
    raise InvalidConfig(
        f"more than {MOST_SET_ASIDE} events of the log do not follow from each other", hint=DAMAGED
    )


class _CannotFold(Exception):  # noqa: N818 - what is said, not what broke
    def __init__(self, seq: int, why: str) -> None:
        super().__init__(why)
        self.seq = seq


def _read(store: Store, make: Callable[[], Scheduler]) -> Recovered:
    back = _from_snapshot(store, make) or _from_base(store, make)
    back = back or Recovered(make(), Ledger(ended=store.ended))
    jobs = back.ledger.jobs
    store.ended.reset(jobs.following, jobs.live)
    jobs.count_ended()
    while part := store.since(back.seq, READ_AT_ONCE):
        for seq, at, event in part:
            _check_none_missing(store, back.seq + 1, seq)
            try:
                back.fold(seq, at, event)
            except Exception as error:  # whatever it raises: the event is to blame
                raise _CannotFold(seq, repr(error)) from error
            _put_away(store, jobs)
    back.release_ended()
    _put_away(store, jobs)
    _check_none_missing(store, back.seq + 1, store.last_seq() + 1)
    return back


def _put_away(store: Store, jobs: JobRecords) -> None:
    """Hand the store those that have left, once they are many."""
    if len(jobs.done) >= PUT_AT_ONCE:
        rows = [row_of(jobs.live[job]) for job in jobs.done]
        store.ended.put(rows)
        jobs.drop_stored(rows)


def _from_base(store: Store, make: Callable[[], Scheduler]) -> Recovered | None:
    """The state that a cut log goes on from; what this code cannot learn is left out."""
    if (base := store.latest_base()) is None:
        return None
    seq, data = base
    try:
        return thaw_state(thaw(data), seq, make(), ended=store.ended, lenient=True)
    except (DamagedSnapshot, KeyError, TypeError, ValueError, WeftError) as error:
        raise InvalidConfig(
            f"the log begins after event {seq}, and the base there cannot be used: {error}",
            hint=DAMAGED,
        ) from error


def _check_none_missing(store: Store, first: int, end: int) -> None:
    """Raise InvalidConfig if the log lacks a row from `first` to before `end`."""
    if first >= end:
        return
    aside = store.unreadable_rows()
    missing = [seq for seq in range(first, min(end, first + SHOWN)) if seq not in aside]
    if missing:
        raise InvalidConfig(
            f"the log lacks event {missing[0]}; it should have all from {first} to {end - 1}",
            hint=DAMAGED,
        )


def refuse_strangers(ledger: Ledger, running: Collection[Attempt]) -> None:
    """Raise InvalidConfig if something runs that the log never promised: the log is an old one.

    Whatever is started was written down before, so this log is not the one they were started by.
    """
    strangers = sorted(
        f"{job} (attempt {attempt})"
        for job, attempt in running
        if job not in ledger.jobs or attempt > ledger.jobs[job].attempt
    )
    if strangers:
        raise InvalidConfig(
            f"jobs run here that are not in the log: {', '.join(strangers[:5])}"
            + (f" and {len(strangers) - 5} more" if len(strangers) > 5 else ""),
            hint="it is older than they are: bring the newest back with `weft state restore`, or "
            "end them with `weft serve --end-unknown`",
        )


def freeze(back: Recovered, *, active_only: bool = False) -> FrozenState:
    """Everything up to now; with `active_only` without records of jobs that have left."""
    saved = back.scheduler.save()
    head = {
        "numbers": saved.state.numbers,
        "knowledge": copy_values(saved.knowledge),  # parts of it are what goes on to learn
        "history": saved.history,
        "drained": sorted(back.drained),
        "entitled": back.ledger.entitlement.save(),
        "shares": back.ledger.usage.windows.save(),
        "tallies": back.ledger.tallies.save(),
        "kinds": dict(back.ledger.kinds),
        "past": back.ledger.history.save(),
        "policy": encode(back.policy),
        "given_up": None if back.given_up is None else encode(back.given_up),
        "at": back.at,
        "jobs": back.ledger.jobs.following,
    }
    promised = [SavedPromise(job, on, n) for (job, n), on in back.ledger.promised().items()]
    records = [*back.ledger.jobs.live.values()]
    if active_only:
        held = {held_job.job for held_job in promised}
        records = [record for record in records if not record.outcome or record.job.id in held]
    kept: dict[str, Sequence[Any]] = {
        "promised": promised,
        "records": records,
        "usage": back.ledger.usage.days(),
    }
    return FrozenState(head, {**saved.state.tables, **kept})


def thaw_state(
    thawed: ThawedState,
    seq: int,
    scheduler: Scheduler,
    *,
    ended: EndedJobs | None = None,
    lenient: bool = False,
) -> Recovered:
    """The state that was frozen at `seq`, in a scheduler that has taken in nothing yet.

    If `lenient`, parts of its knowledge that cannot be taken up start over.
    """
    head, tables = thawed.head, thawed.tables
    records: dict[JobId, JobRecord] = {record.job.id: record for record in tables["records"]}
    promised = {(promise.job, promise.attempt): promise.on for promise in tables["promised"]}
    saved = SavedState(head["numbers"], tables)
    jobs = {name: record.job for name, record in records.items()}
    known = SavedScheduler(saved, head["knowledge"], head["history"])
    scheduler.load(known, jobs, lenient=lenient)
    drained = {NodeId(node) for node in head["drained"]}
    policy: PartSpec = decode(PartSpec, head["policy"])
    fallen_back = head["given_up"]
    given_up: facts.PolicyChanged | None = (
        None if fallen_back is None else decode(facts.PolicyChanged, fallen_back)
    )
    following = head.get("jobs", 0)
    ledger = Ledger(records.values(), promised, tables["usage"], ended=ended, following=following)
    if "entitled" in head:
        ledger.entitlement.load(head["entitled"])
    if "shares" in head:
        ledger.usage.windows.load(head["shares"])
    nodes = {node.id: node.kind for node in scheduler.state.cluster.nodes}
    ledger.kinds = {NodeId(node): kind for node, kind in head.get("kinds", nodes).items()}
    if "tallies" in head:
        ledger.tallies.load(head["tallies"])
    if "past" in head:
        ledger.history.load(head["past"])
    if ledger.history.begun is None:
        ledger.history.begin_with(head["at"], records.values(), scheduler.state.cluster.nodes)
    return Recovered(scheduler, ledger, drained, policy, given_up, seq, head["at"])


def reconcile(
    back: Recovered, nodes: Sequence[Node], known: Collection[Attempt]
) -> tuple[list[facts.Event], list[Wish]]:
    """Events that must have happened while no service ran, and requests to repeat to the engine."""
    state = back.scheduler.state
    events: list[facts.Event] = []
    there = {node.id for node in nodes}
    events += [facts.NodeDown(node.id) for node in state.cluster.nodes if node.id not in there]
    for node in nodes:
        at = state.cluster.index.get(node.id)
        if node.id not in back.drained and (at is None or state.cluster.nodes[at] != node):
            events.append(facts.NodeUp(node))
    table = state.table
    for row in np.flatnonzero(table.column(TableColumns.STAGE) == Stage.RUNNING).tolist():
        job, attempt = table.jobs[row], int(table.get(row, TableColumns.ATTEMPT))
        if (job.id, attempt) not in known:
            events.append(
                facts.Failed(job.id, attempt, "lost while the service was away", lost=True)
            )
    wishes: list[Wish] = []
    for wish in wishes_of(state):
        if isinstance(wish, (Sleep, Resume)) and _attempt(wish) not in known:
            why = "lost while the service was away"
            events.append(facts.Failed(*_attempt(wish), why, lost=True))
        elif isinstance(wish, Stop) and (wish.job, wish.attempt) not in known:
            events.append(facts.Stopped(wish.job, wish.attempt))
        elif isinstance(wish, Resize) and (wish.job.id, wish.attempt) not in known:
            continue  # it is lost, and starts over where it was to go
        else:
            wishes.append(wish)
    return events, wishes


def _attempt(wish: Sleep | Resume) -> Attempt:
    return (wish.job if isinstance(wish, Sleep) else wish.job.id), wish.attempt


def _from_snapshot(store: Store, make: Callable[[], Scheduler]) -> Recovered | None:
    if (latest := store.latest_snapshot()) is None:
        return None
    seq, data = latest
    try:
        thawed = thaw(data)
        if thawed.is_same_code:
            back = thaw_state(thawed, seq, make(), ended=store.ended)
            back.saved = seq
            return back
    except (DamagedSnapshot, KeyError, TypeError, ValueError, WeftError) as error:
        log.warning("snapshot=%d cannot be used (%s); reading the whole log", seq, error)
        return None
    log.info("snapshot=%d is of another version; reading the whole log", seq)
    return None


Wish = Start | Stop | Resize | Sleep | Resume | OrderMemory


def wishes_of(state: State) -> list[Wish]:
    """Every stop, start and resize that was asked for and not answered yet, stops first.

    What a driver repeats when it cannot know which actions were carried out. So is every job that
    is to sleep, since it may have been woken meanwhile, and the order for device memory.
    """
    sleepers, table, releasing = state.asleep.sleepers, state.table, state.releasing
    wishes: list[Wish] = [
        Stop(*leaving) for leaving in releasing.leaving() if state.asleep.find(*leaving) is None
    ]
    wishes += state.live.pending_resizes(table)
    for sleeping in sleepers.values():
        if not (sleeping.there and _is_asked_to_run(state, sleeping.job)):
            wishes.append(Sleep(sleeping.job, sleeping.attempt, sleeping.rung))
    for row in np.flatnonzero(table.column(TableColumns.STAGE) == Stage.STARTING).tolist():
        job, on = table.jobs[row], table.allocations[row]
        if on is not None and not releasing.holds(job.id):
            kind = Resume if job.id in sleepers else Start
            wishes.append(kind(job, on, int(table.get(row, TableColumns.ATTEMPT))))
    if state.memory_order:
        wishes.append(OrderMemory(state.memory_order))
    return wishes


def _is_asked_to_run(state: State, job: JobId) -> bool:
    """True if a job was given its devices, and no other job is on them any more."""
    on = state.table.allocations[state.table.row(job)]
    return on is not None and not state.releasing.holds(job)
