"""One attempt between its request and the word of its end: what is to be done next. Pure.

Two sources are weighed: what the agents wrote (`GangWatch`) and what the manager says
(`Observation`). An end is reported when both agree that nothing is left; silence of the manager
decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType

from weft.core.events.event import Event
from weft.engines.attempts.agent_log import LONGEST_TEXT
from weft.engines.attempts.health_board import AgentHealth
from weft.engines.fleet.changing import Changing
from weft.engines.fleet.gang import GangWatch, PartWatch
from weft.engines.fleet.port import Gang, Key, Observation, Phase
from weft.frozen import frozen

PEERS_GRACE_S = 5.0  # what the others get to leave when one part has failed or is lost
OVERDUE_S = 15.0  # what agents may take to end their ranks after their time to leave is over
LAG_S = 3.0  # how long after a manager's word files may take to be seen
CLAIM_S = 60.0  # how long an agent may take to come up after the manager says that it runs
SILENT_S = 45.0  # no heartbeat for so long: the part is lost
LINGER_S = 10.0  # what a manager may take to see that all agents have left
AGAIN_S = 10.0  # until it is asked once more to end something


@dataclass(slots=True)
class Run:
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
    changing: Changing | None = None
    _cancelled: float = -inf
    _gone: dict[Key, float] = field(default_factory=dict)
    _ran: dict[Key, float] = field(default_factory=dict)
    _over: float = inf

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.watch.gang.key

    @property
    def gangs(self) -> tuple[Gang, ...]:
        """All that its manager may have of it."""
        return self.watch.roster.every_gang

    @property
    def health(self) -> list[AgentHealth]:
        """What its agents reported of devices and has not been processed yet."""
        return self.watch.health

    @property
    def more(self) -> bool:
        """Whether an agent's log was not read to its end."""
        return any(part.log.more for part in self.watch.parts if not part.over)

    def news(self, now: float) -> Iterable[Event]:
        """What its agents wrote down since the last call."""
        return self.watch.read(now)

    def ask(self, grace_s: float, now: float) -> None:
        """It has been asked to stop within `grace_s`."""
        self.deadline = min(self.deadline, now + grace_s + OVERDUE_S)


@frozen
class Step:
    """What follows: ask the other parts to leave, have the manager end it, tell its end.

    `hurry` says that only the manager's word is missing.
    """

    ask: bool = False
    cancel: bool = False
    tell: bool = False
    hurry: bool = False


Observations = Mapping[Key, Observation | None]
NOTHING: Observations = MappingProxyType({})


def next_step(
    run: Run, seen: Observation | None, *, heard: bool, now: float, more: Observations = NOTHING
) -> Step:
    """What to do about an attempt. `heard`: the manager was asked since it took the attempt.

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
        run.ask(PEERS_GRACE_S, now)
    if watch.over:
        run._over = min(run._over, now)
    given_up = any(part.lost for part in watch.parts)
    left_behind = watch.over and not gone and (given_up or now - run._over > LINGER_S)
    cancel = (left_behind or now > run.deadline) and not gone and now - run._cancelled > AGAIN_S
    if cancel:
        run._cancelled = now
    return Step(
        ask=ask,
        cancel=cancel,
        tell=watch.over and (gone or watch.node_lost),
        hurry=watch.over and not gone,
    )


def _weigh(run: Run, gang: Gang, seen: Observation | None, now: float) -> bool:
    """Take in what the manager says; whether nothing of a gang is left."""
    watch, key = run.watch, gang.key
    if seen is not None and seen.phase is Phase.LOST:
        nodes = seen.nodes or tuple(watched.part.node for watched in watch.of_gang(gang))
        watch.lose(nodes, seen.reason or f"{', '.join(nodes)} went down", of=gang)
    if seen is None or seen.phase in (Phase.ENDED, Phase.LOST):
        if now - run._gone.setdefault(key, now) > LAG_S:
            _give_up_silent(watch.of_gang(gang), seen)
        return True
    run._gone.pop(key, None)
    if key == run.key:
        run.waiting = seen.reason if seen.phase is Phase.PENDING else ""
    if seen.nodes:
        watch.lose(seen.nodes, seen.reason or f"{', '.join(seen.nodes)} went down")
    if seen.phase is Phase.RUNNING:
        _look_for_signs(watch.of_gang(gang), now, run._ran.setdefault(key, now))
    return False


def _give_up_silent(parts: Iterable[PartWatch], seen: Observation | None) -> None:
    """Parts that the manager says are gone, and that have not said their last word."""
    why = f": {seen.reason}" if seen is not None and seen.reason else ""
    if seen is not None and seen.code:
        why += f" (exit code {seen.code})" if seen.code > 0 else f" (signal {-seen.code})"
    for watched in parts:
        what = "died" if watched.claimed else "did not come up"
        watched.lose(f"its agent on {watched.part.node} {what}{why}"[:LONGEST_TEXT])


def _look_for_signs(parts: Iterable[PartWatch], now: float, ran: float) -> None:
    for watched in parts:
        if not watched.claimed and now - ran > CLAIM_S:
            watched.lose(f"its agent on {watched.part.node} did not come up within {CLAIM_S:g} s")
        elif watched.claimed and now - watched.heard > SILENT_S:
            watched.lose(f"no heartbeat from its agent on {watched.part.node} for {SILENT_S:g} s")
