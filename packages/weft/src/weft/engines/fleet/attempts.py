"""One attempt between its request and the word of its end: what is to be done next. Pure.

The engine brings it on and the ranks decide. Until they are asked to form the groups of the next
epoch the engine may give up; from then on it asks, and waits for what the old ranks say.

Two sources are weighed: what the agents wrote (`GangWatch`) and what the manager says
(`AttemptObservation`). An end is reported when both agree that nothing is left; silence of the
manager decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from types import MappingProxyType

from weft.core.events.event import Event
from weft.engines.attempts.agent_log import LONGEST_TEXT
from weft.engines.attempts.health_board import AgentHealth
from weft.engines.fleet.gang import AgentNote, GangWatch, PartWatch
from weft.engines.fleet.port import AttemptObservation, AttemptPhase, Gang, Key
from weft.engines.fleet.roster import PendingChange
from weft.frozen import frozen


class ResizeStep(StrEnum):
    """The engine's next step in a change."""

    WAIT = "wait"
    FORM = "form"  # tell all ranks to form the next epoch's groups
    DROP = "drop"  # tell the old ones that it is not to be
    END = "end"  # end those that were to join
    FAIL = "fail"  # nothing of it is left: say so
    FINISH = "finish"  # the ranks that left are gone: report it


@dataclass(slots=True)
class ChangeInProgress:
    """A change under way; times are of this machine's own clock.

    `resumed` says that a service before us began it, `refused` that the manager will not have those
    that join. `store` is where ranks can meet, `asked` when they were asked to. `failed` is why it
    cannot be, `superseded` that it is not wanted any more. Where the agent that is there starts new
    ranks, `closed` is its word that nothing is left of these (undone), or of the others (settled).
    """

    change: PendingChange
    limit_s: float
    began: float
    resumed: bool = False
    refused: bool = False
    store: str = ""
    asked: float = 0.0
    built: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    adopted: bool = False
    pause_s: float = 0.0
    dropping: bool = False
    dropped: bool = False
    closed: str = ""
    failed: str = ""
    superseded: bool = False
    ended: float = float("-inf")  # when those that join were last ended

    def on_note(self, note: AgentNote) -> None:
        """Take account of an agent's note about a change."""
        number, what = note.number, note.event
        if what == "gone":
            self.gone.add(number)
            if number in self.change.joining_ranks and not self.adopted:
                why = f"new rank {number} ended with exit code {note.code} before it had joined"
                self.failed = self.failed or why
        elif note.epoch != self.change.epoch:
            return
        elif what == "meeting":
            self.store = note.text
        elif what == "built":
            self.built.add(number)
        elif what == "adopted":
            self.adopted = True
            if number not in self.change.joining_ranks or not self.pause_s:
                self.pause_s = max(self.pause_s, note.pause_s)
        elif what == "dropped":
            self.dropped = True
            self.failed = self.failed or note.text or "the old ranks did not agree"
        else:
            self.closed = what

    def next_move(
        self,
        joiners: Collection[PartWatch],
        now: float,
        *,
        ending: bool,
        joiners_gone: bool,
        leavers_gone: bool,
    ) -> ResizeStep:
        """The step that follows. `ending`: the attempt is being ended, or has come to its end."""
        if self.adopted:
            return ResizeStep.FINISH if leavers_gone else ResizeStep.WAIT
        self._find_fault(joiners, now, ending=ending)
        if not self.failed and not self.superseded:
            ready = self.store and self.built >= {*self.change.joining_ranks}
            return ResizeStep.FORM if ready and not self.asked else ResizeStep.WAIT
        if self.asked and not self.dropped and not ending:
            return ResizeStep.WAIT if self.dropping else ResizeStep.DROP
        over = all(watch.over for watch in joiners)
        return ResizeStep.FAIL if over and joiners_gone else ResizeStep.END

    def _find_fault(self, joiners: Iterable[PartWatch], now: float, *, ending: bool) -> None:
        if self.failed:
            return
        lost = next((watch for watch in joiners if watch.over), None)
        if ending:
            self.failed = "the attempt is stopped"
        elif lost is not None:
            self.failed = lost.lost or f"its agent on {lost.part.node} ended before it had joined"
        elif not self.asked and now > self.began + self.limit_s:
            self.failed = f"its new ranks were not ready within {self.limit_s:g} s"
        elif self.asked and now > self.asked + self.limit_s:
            self.failed = f"its ranks did not switch within {self.limit_s:g} s"


PEERS_GRACE_S = 5.0  # what the others get to leave when one part has failed or is lost
OVERDUE_S = 15.0  # what agents may take to end their ranks after their time to leave is over
LAG_S = 3.0  # how long after a manager's word files may take to be seen
CLAIM_S = 60.0  # how long an agent may take to come up after the manager says that it runs
SILENT_S = 45.0  # no heartbeat for so long: the part is lost
LINGER_S = 10.0  # what a manager may take to see that all agents have left
AGAIN_S = 10.0  # until it is asked once more to end something


@dataclass(slots=True)
class RunningAttempt:
    """An attempt whose end has not been reported yet.

    `submitted` is when the manager took it, None before that. `asked` says that it is to stop;
    `deadline` is when processes that have not left are ended. `silent` is for an attempt of no job.
    `joined` is when the manager took the parts that came later, by what they were submitted as;
    `changing` is the change of its ranks that is under way.
    """

    watch: GangWatch
    submitted: float | None = None
    submitting: bool = False
    asked: bool = False
    deadline: float = inf
    silent: bool = False
    waiting: str = ""
    pending: str = ""
    joined: dict[Key, float] = field(default_factory=dict)
    changing: ChangeInProgress | None = None
    _cancelled: float = -inf
    _gone: dict[Key, float] = field(default_factory=dict)
    _ran: dict[Key, float] = field(default_factory=dict)
    _over: float = inf

    @property
    def key(self) -> Key:
        return self.watch.gang.key

    @property
    def gangs(self) -> tuple[Gang, ...]:
        """All that its manager may have of it."""
        return self.watch.roster.every_gang

    @property
    def health(self) -> list[AgentHealth]:
        return self.watch.health

    @property
    def has_unread_log(self) -> bool:
        return any(part.log.more for part in self.watch.parts if not part.over)

    def poll_events(self, now: float) -> Iterable[Event]:
        return self.watch.read(now)

    def note_stop_request(self, grace_s: float, now: float) -> None:
        """Note that it has been asked to stop within `grace_s`."""
        self.deadline = min(self.deadline, now + grace_s + OVERDUE_S)


@frozen
class NextStep:
    """The steps to take: ask the other parts to leave, have the manager end it, tell its end.

    `hurry` says that only the manager's word is missing.
    """

    ask: bool = False
    cancel: bool = False
    tell: bool = False
    hurry: bool = False


Observations = Mapping[Key, AttemptObservation | None]
NOTHING: Observations = MappingProxyType({})


def next_step(
    run: RunningAttempt,
    seen: AttemptObservation | None,
    *,
    heard: bool,
    now: float,
    more: Observations = NOTHING,
) -> NextStep:
    """The step to take with an attempt. `heard`: the manager was asked since it took the attempt.

    `seen` None: it was asked and does not know it. `more` is the same for what joined later, as
    far as the manager was asked since.
    """
    watch = run.watch
    observed = {**more, **({run.key: seen} if heard and run.submitted is not None else {})}
    words = [
        gang.key in observed and _weigh(run, gang, observed[gang.key], now) for gang in run.gangs
    ]
    gone = all(words)
    ask = watch.broken and run.deadline == inf
    if ask:
        watch.note_failure()
        run.note_stop_request(PEERS_GRACE_S, now)
    if watch.over:
        run._over = min(run._over, now)
    given_up = any(part.abandoned for part in watch.parts)
    last_word = watch.on_this_machine and not given_up
    left_behind = watch.over and not gone and (given_up or now - run._over > LINGER_S)
    cancel = (left_behind or now > run.deadline) and not gone and now - run._cancelled > AGAIN_S
    if cancel:
        run._cancelled = now
    return NextStep(
        ask=ask,
        cancel=cancel,
        tell=watch.over and (gone or watch.node_lost or last_word),
        hurry=watch.over and not gone,
    )


def _weigh(run: RunningAttempt, gang: Gang, seen: AttemptObservation | None, now: float) -> bool:
    """Take in what the manager says; whether nothing of a gang is left."""
    watch, key = run.watch, gang.key
    if seen is not None and seen.phase is AttemptPhase.LOST:
        nodes = seen.nodes or tuple(watched.part.node for watched in watch.of_gang(gang))
        watch.mark_lost(nodes, seen.reason or f"{', '.join(nodes)} went down", of=gang)
    if seen is None or seen.phase in (AttemptPhase.ENDED, AttemptPhase.LOST):
        if now - run._gone.setdefault(key, now) > (0.0 if watch.on_this_machine else LAG_S):
            _give_up_silent(run.key, watch.of_gang(gang), seen)
        return True
    run._gone.pop(key, None)
    if key == run.key:
        run.waiting = seen.reason if seen.phase is AttemptPhase.PENDING else ""
    if seen.nodes:
        watch.mark_lost(seen.nodes, seen.reason or f"{', '.join(seen.nodes)} went down")
    if seen.phase is AttemptPhase.RUNNING and not watch.on_this_machine:
        _look_for_signs(run.key, watch.of_gang(gang), now, run._ran.setdefault(key, now))
    return False


def _give_up_silent(key: Key, parts: Iterable[PartWatch], seen: AttemptObservation | None) -> None:
    """Parts that the manager says are gone, and that have not said their last word."""
    why = f": {seen.reason}" if seen is not None and seen.reason else ""
    if seen is not None and seen.code:
        why += f" (exit code {seen.code})" if seen.code > 0 else f" (signal {-seen.code})"
    for watched in parts:
        what = "died" if watched.claimed else "did not come up"
        watched.mark_lost(key, f"its agent on {watched.part.node} {what}{why}"[:LONGEST_TEXT])


def _look_for_signs(key: Key, parts: Iterable[PartWatch], now: float, ran: float) -> None:
    for watched in parts:
        agent = f"its agent on {watched.part.node}"
        if not watched.claimed and now - ran > CLAIM_S:
            watched.mark_lost(key, f"{agent} did not come up within {CLAIM_S:g} s")
        elif watched.claimed and now - watched.heard > SILENT_S:
            watched.mark_lost(key, f"no heartbeat from {agent} for {SILENT_S:g} s")
