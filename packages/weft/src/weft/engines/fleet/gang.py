"""The parts of an attempt joined to one: started when all have, ended when all have, one verdict.

Everything here reads files that the job may have replaced; what is not as an agent writes it
raises WireError, for that part alone.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Collection, Iterator
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.core.events.event import Event, Failed, Finished, Started, StartFailed, Stopped
from weft.core.model.job import NodeId
from weft.engines.attempts.agent_log import (
    LONGEST_TEXT,
    AgentLine,
    AgentLog,
    read_end,
    read_line,
    read_resize,
)
from weft.engines.attempts.health_board import AgentHealth, read_health
from weft.engines.attempts.rounds import MACHINE_WIDE as OF_THIS_MACHINE
from weft.engines.attempts.watch import AgentProcess, Process
from weft.engines.fleet.port import AttemptPart, Gang, Key
from weft.engines.fleet.roster import Roster, begin_roster
from weft.frozen import frozen
from weft.wire.attempt import BEAT, CLAIM
from weft.wire.shared_files import open_regular, shared_with

LONGEST_BEAT = 40
RELEASED = "released"  # how a part ends whose ranks are none of the attempt's any more
End = Finished | Stopped | Failed


@dataclass(slots=True)
class PartWatch:
    """One part: what its agent said, and when it last gave a sign of life.

    `again` is for one that was watched before a restart. `lost` is why no word of it is expected
    any more; `node_lost` that its node is gone with it. A part that is `joining` has no rank of
    the attempt yet, and one that was `released` has none any more. `abandoned` says that it was
    given up, and is over for that; `spoilt` that it was for what is in its folder. `agent` is there
    for a part on this machine. `ranks` are processes by number, `codes` those of ranks that ended.
    """

    part: AttemptPart
    again: InitVar[bool] = False
    agent: AgentProcess | None = None
    log: AgentLog = field(init=False)
    claimed: bool = False
    started: bool = False
    end: End | None = None
    ended_at: float = 0.0
    lost: str = ""
    node_lost: bool = False
    joining: bool = False
    released: bool = False
    abandoned: bool = False
    spoilt: bool = False
    stopping: bool = False
    ranks: dict[str, Process] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    heard: float = 0.0
    _beat: bytes = b""

    def __post_init__(self, again: bool) -> None:
        self.log = AgentLog(self.part.folder, again)

    @property
    def over(self) -> bool:
        """True if nothing more comes of it."""
        return self.end is not None or bool(self.lost)

    def note(self, key: Key, line: AgentLine) -> None:
        """Take down what a line of its agent's log says about its processes."""
        if "ranks" in line:  # when it started, after a setup, and when they have changed
            self.ranks = {name: (int(p), int(b)) for name, (p, b) in line["ranks"].items()}
        match line["event"]:
            case "started":
                self.started = True
            case "exited":
                self.codes[str(line["rank"])] = int(line["code"])
            case "stopping":
                self.stopping = True
            case "ended":
                if self.agent is not None:
                    self.agent.check_gone()
                self.released = line["outcome"] == RELEASED
                self.end, self.ended_at = read_end(*key, line), float(line.get("at", 0.0))

    @property
    def pids(self) -> dict[int, int]:
        """The processes of ranks that have not ended, by number."""
        return {int(n): pid for n, (pid, _) in self.ranks.items() if n not in self.codes}

    def listen(self, now: float) -> str:
        """Look for its agent; why that is gone, empty if it is not known to be.

        `now` is this machine's own clock.
        """
        if not self.part.folder.is_dir():  # it was there before anyone was asked to run it
            raise WireError(f"its folder on {self.part.node} was removed")
        if self.agent is not None:
            written = self.log.offset > 0
            return self.agent.poll(now, started=self.started, written=written)
        self.claimed = self.claimed or (self.part.folder / CLAIM).exists()
        try:
            handle = open_regular(self.part.folder / BEAT)
        except FileNotFoundError:
            beat = b""
        else:
            beat = os.read(handle, LONGEST_BEAT)
            os.close(handle)
        if beat != self._beat or not self.heard:
            self._beat, self.heard = beat, now
        return ""

    def mark_lost(self, key: Key, why: str, *, node_lost: bool = False) -> None:
        """Give it up, unless it had said its last word: that may have been all it had to say."""
        if self.over:
            return
        self.abandoned = True
        ended = bool(self.ranks) and self.ranks.keys() <= self.codes.keys()
        if ended and not (self.stopping or node_lost or any(self.codes.values())):
            self.end = Finished(*key)
        else:
            self.lost, self.node_lost = why, node_lost

    def give_up(self, key: Key, why: str) -> None:
        """Give it up for what is in its folder."""
        self.abandoned = self.spoilt = True
        self.end = Failed(*key, f"quarantined: {why}")


# Not the doing of one attempt: of a shared file system, its server's absence as well.
MACHINE_WIDE = OF_THIS_MACHINE | {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN}


@frozen
class AgentNote:
    """An agent's note about a change of ranks; see `weft.node.resizer`."""

    event: str
    epoch: int = 0
    number: int = -1
    code: int = 0
    pause_s: float = 0.0
    text: str = ""


def read_note(line: AgentLine) -> AgentNote:
    """From a line of an agent's log; `text` is a reason, or the address where ranks can meet."""
    text = str(line.get("reason", line.get("store", "")))[:LONGEST_TEXT]
    if "port" in line:  # of an agent of the last version
        text = f"tcp://{line['address']}:{int(line['port'])}"
    numbers = (int(line.get("epoch", 0)), int(line.get("number", -1)), int(line.get("code", 0)))
    return AgentNote(line["event"], *numbers, float(line.get("pause_s", 0.0)), text)


class GangWatch:
    """An attempt whose end has not been reported yet.

    `again` is for one that was watched before a restart: only the last of its reports and of its
    checkpoints is reported. `notes` are what agents said of a change of their ranks and the engine
    has not read yet; `able` says that ranks may change during training, `several` that more than
    one may. `agent` is that of an attempt on this machine, which has one part.
    """

    def __init__(
        self,
        gang: Gang,
        *,
        again: bool = False,
        roster: Roster | None = None,
        agent: AgentProcess | None = None,
    ) -> None:
        self._first = gang
        self.roster = roster or begin_roster(gang)
        self.parts = [PartWatch(part, again, agent) for part in self.roster.parts]
        self.notes: list[AgentNote] = []
        self.able, self.several = False, self.roster.several
        self.started = False  # told
        self.health: list[AgentHealth] = []
        self._unsaid: list[Event] = []  # read, and not told because another part was not
        self._failed_first = False
        self._went_down = ""  # why nodes under it did, whatever its parts had said by then

    @property
    def gang(self) -> Gang:
        """As it is now: with all parts that have agents, the one with rank 0 first."""
        return replace(self._first, parts=tuple(watch.part for watch in self.parts))

    @property
    def on_this_machine(self) -> bool:
        """True if it runs on this machine."""
        return self.parts[0].agent is not None

    @property
    def given_up(self) -> bool:
        """True if it was given up for what is in its folders."""
        return any(watch.spoilt for watch in self.parts)

    def give_up(self, why: str) -> None:
        """Give it up for what is in its folders."""
        for watch in self.parts:
            if not watch.over:
                watch.give_up(self.gang.key, why)

    @property
    def members(self) -> list[PartWatch]:
        """Return the parts whose ranks belong to the attempt."""
        return [watch for watch in self.parts if not watch.joining and not watch.released]

    @property
    def joiners(self) -> list[PartWatch]:
        """Parts that are to become members."""
        return [watch for watch in self.parts if watch.joining]

    def watch_extension(self, *, again: bool = False) -> None:
        """Listen to the parts that join."""
        change = self.roster.change
        for part in change.extension.parts if change is not None and change.extension else ():
            self.parts.append(PartWatch(part, again, joining=True))

    def commit(self) -> None:
        """The ranks have changed: those that joined are members, and parts without ranks are not.

        A new rank that died between the agreement and its first word is a member that failed.
        """
        change, leaving = self.roster.change, self.roster.leaving
        stay = {part.folder for part in change.parts} if change is not None else set()
        for watch in self.parts:
            if watch.joining and watch.released:
                why = "a new rank died as it joined"
                watch.released, watch.end = False, Failed(*self.gang.key, why, lost=True)
            watch.joining = False
            if leaving and watch.part.folder not in stay:
                watch.released = True

    def adopt_roster(self, roster: Roster) -> None:
        """Go on with the parts of a change that was answered."""
        self.roster = roster
        by_folder = {watch.part.folder: watch for watch in self.parts}
        self.parts = [by_folder[part.folder] for part in roster.parts]
        for watch, part in zip(self.parts, roster.parts, strict=True):
            watch.part = part

    def of_gang(self, gang: Gang) -> list[PartWatch]:
        """The parts that were submitted together."""
        own = {part.folder for part in gang.parts}
        return [watch for watch in self.parts if watch.part.folder in own]

    @property
    def folders(self) -> list[Path]:
        """Folders of the parts that may still have something to say."""
        return [watch.part.folder for watch in self.parts if not watch.over]

    @property
    def over(self) -> bool:
        """True if nothing more comes of any part."""
        return all(watch.over for watch in self.parts)

    @property
    def broken(self) -> bool:
        """True if one part has failed or is lost while others go on."""
        return not self.over and any(
            watch.lost or isinstance(watch.end, (Failed, Stopped)) for watch in self.members
        )

    @property
    def unread(self) -> bool:
        """True if it was watched before a restart, and not all was read that its agents wrote."""
        return not self.over and any(watch.log.again for watch in self.members)

    @property
    def node_lost(self) -> bool:
        """True if a node went down under it."""
        return any(watch.node_lost for watch in self.members)

    # ---- news

    def read(self, now: float) -> list[Event]:
        """Events that its agents wrote down since the last call."""
        for watch in self.parts:
            if watch.over:
                continue
            try:
                gone = watch.listen(now)
                self._unsaid += watch.log.events(partial(self._read, watch))
            except (WireError, OSError) as error:
                if isinstance(error, OSError) and error.errno in MACHINE_WIDE:
                    raise
                watch.give_up(self.gang.key, str(error))
            else:
                if gone and not watch.log.more:  # what it wrote before was read after that
                    watch.mark_lost(self.gang.key, gone)
        events, self._unsaid = self._unsaid, []
        return [*self._begin(), *events]

    def _begin(self) -> list[Event]:
        if self.started or not all(watch.started for watch in self.members):
            return []
        self.started = True
        return [Started(self.gang.job, self.gang.attempt)]

    def _read(self, watch: PartWatch, line: dict[str, Any]) -> Iterator[Event]:
        job, attempt = self.gang.key
        watch.note(self.gang.key, line)
        match line["event"]:
            case "resizable":
                self.able = "several" in line  # an agent of the last version cannot be asked
                self.several = bool(line.get("several"))
                yield read_resize(job, attempt, line)
            case "meeting" | "built" | "adopted" | "dropped" | "gone" | "undone" | "settled":
                self.notes.append(read_note(line))
            case "resized" | "resize_failed":
                yield read_resize(job, attempt, line)
            case "health" if watch.agent is not None:
                self.health.append(read_health(line))
            case "health":
                health, owner = read_health(line), _writer_of(watch.part.folder)
                witness = None if owner == os.geteuid() else owner
                self.health.append(replace(health, node=watch.part.node, witness=witness))
            case _:
                yield from read_line(job, attempt, line)

    # ---- its end

    def mark_lost(self, nodes: Collection[NodeId], why: str, of: Gang | None = None) -> None:
        """These nodes are gone, and the parts on them; only those of a gang where one is given."""
        for watch in self.parts if of is None else self.of_gang(of):
            if watch.part.node in nodes:
                if not watch.joining:
                    self._went_down = self._went_down or why
                watch.mark_lost(self.gang.key, why, node_lost=True)

    def revoke(self, folder: Path) -> None:
        """No agent ever took the part in this folder, nor will: it has stopped there."""
        for watch in self.parts:
            if watch.part.folder == folder and watch.end is None:
                watch.end = Stopped(self.gang.job, self.gang.attempt)

    def note_failure(self) -> None:
        """Note that it fell apart before anyone asked it to stop: that is how it ended."""
        self._failed_first = True

    def end_events(self, *, asked: bool) -> list[Event]:
        """The end of an attempt that is over; `asked` says that it was to stop."""
        job, attempt = self.gang.key
        if asked and not self._failed_first:
            return [Finished(job, attempt) if self._is_done() else Stopped(job, attempt)]
        lost = next((watch for watch in self.members if watch.lost), None)
        if lost is not None:
            return [self._end_lost(lost.lost, agent_died=not lost.node_lost)]
        failures = [watch for watch in self.members if isinstance(watch.end, Failed)]
        if failures and self._went_down and all(map(_was_ended, failures)):
            return [self._end_lost(self._went_down, agent_died=False)]
        if failures:
            return self._failed(failures)
        if all(isinstance(watch.end, Finished) for watch in self.members):
            return [Finished(job, attempt)]
        return [Stopped(job, attempt)]

    def _is_done(self) -> bool:
        """True if it had ended by itself when it was asked to stop, as rank 0 reports."""
        first, *others = self.members or self.parts
        return isinstance(first.end, Finished) and not any(
            watch.lost or isinstance(watch.end, Failed) for watch in others
        )

    def _end_lost(self, why: str, *, agent_died: bool) -> Event:
        job, attempt = self.gang.key
        if not self.started:
            return StartFailed(job, attempt, why, lost=True)
        return Failed(job, attempt, why, lost=True, agent_died=agent_died)

    def _failed(self, failures: list[PartWatch]) -> list[Event]:
        """The first that was not ended because of another; it has started if its ranks ran."""
        job, attempt = self.gang.key
        first = min(failures, key=_cause)
        assert isinstance(first.end, Failed)
        where = f" (on {first.part.node})" if len(self.parts) > 1 else ""
        end = replace(first.end, reason=first.end.reason + where)
        if self.started:
            return [end]
        if first.started:
            return [Started(job, attempt), end]
        return [StartFailed(job, attempt, end.reason, lost=end.lost)]


def _writer_of(folder: Path) -> int:
    """The user whose processes write in a part's folder."""
    shared = shared_with(folder)
    return folder.stat().st_uid if shared is None else shared


def _cause(watch: PartWatch) -> tuple[bool, float]:
    assert isinstance(watch.end, Failed)
    return watch.end.code == -signal.SIGTERM, watch.ended_at


def _was_ended(watch: PartWatch) -> bool:
    """True if a signal ended it: a manager that loses a node ends the ranks on the others."""
    return isinstance(watch.end, Failed) and watch.end.code in (-signal.SIGTERM, -signal.SIGKILL)
