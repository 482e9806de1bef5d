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

from weft.core.events.event import Event, Failed, Finished, Started, StartFailed, Stopped
from weft.core.model.job import NodeId
from weft.engines.attempts.agent_log import (
    LONGEST_TEXT,
    AgentLog,
    Line,
    read_end,
    read_line,
    read_resize,
)
from weft.engines.attempts.health_board import AgentHealth, read_health
from weft.engines.attempts.rounds import MACHINE_WIDE as OF_THIS_MACHINE
from weft.engines.fleet.port import Gang, Part
from weft.engines.fleet.roster import Roster, begin_roster
from weft.frozen import frozen
from weft.wire.attempt import BEAT, CLAIM
from weft.wire.errors import WireError
from weft.wire.regular_files import open_regular
from weft.wire.shared_folders import shared_with

# Not the doing of one attempt: of a shared file system, its server's absence as well.
MACHINE_WIDE = OF_THIS_MACHINE | {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN}
LONGEST_BEAT = 40
RELEASED = "released"  # how a part ends whose ranks are none of the attempt's any more
End = Finished | Stopped | Failed


@frozen
class Note:
    """What an agent wrote of a change of ranks; see `weft.node.gang_resizer`."""

    event: str
    epoch: int = 0
    number: int = -1
    code: int = 0
    pause_s: float = 0.0
    text: str = ""


def read_note(line: Line) -> Note:
    """From a line of an agent's log; `text` is a reason, or the address where ranks can meet."""
    text = str(line.get("reason", ""))[:LONGEST_TEXT]
    if line["event"] == "meeting":
        text = f"tcp://{line['address']}:{int(line['port'])}"
    numbers = (int(line.get("epoch", 0)), int(line.get("number", -1)), int(line.get("code", 0)))
    return Note(line["event"], *numbers, float(line.get("pause_s", 0.0)), text)


@dataclass(slots=True)
class PartWatch:
    """One part: what its agent said, and when it last gave a sign of life.

    `again` is for one that was watched before a restart. `lost` is why no word of it is expected
    any more; `node_lost` that its node is gone with it. A part that is `joining` has no rank of
    the attempt yet, and one that was `released` has none any more.
    """

    part: Part
    again: InitVar[bool] = False
    log: AgentLog = field(init=False)
    claimed: bool = False
    started: bool = False
    end: End | None = None
    ended_at: float = 0.0
    lost: str = ""
    node_lost: bool = False
    joining: bool = False
    released: bool = False
    heard: float = 0.0
    _beat: bytes = b""

    def __post_init__(self, again: bool) -> None:
        self.log = AgentLog(self.part.folder, again)

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.end is not None or bool(self.lost)

    def listen(self, now: float) -> None:
        """Whether an agent has it, and whether that lives; `now` is this machine's own clock."""
        if not self.part.folder.is_dir():  # it was there before anyone was asked to run it
            raise WireError(f"its folder on {self.part.node} was removed")
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

    def lose(self, why: str, *, node_lost: bool = False) -> None:
        """Give it up, unless it had said its last word."""
        if not self.over:
            self.lost, self.node_lost = why, node_lost


class GangWatch:
    """An attempt whose end has not been reported yet.

    `again` is for one that was watched before a restart: only the last of its reports and of its
    checkpoints is reported. `notes` are what agents said of a change of their ranks and the engine
    has not read yet; `several` says that more than one rank may change during training.
    """

    def __init__(self, gang: Gang, *, again: bool = False, roster: Roster | None = None) -> None:
        self._first = gang
        self.roster = roster or begin_roster(gang)
        self.parts = [PartWatch(part, again) for part in self.roster.parts]
        self.notes: list[Note] = []
        self.several = self.roster.several
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
    def members(self) -> list[PartWatch]:
        """The parts whose ranks are those of the attempt."""
        return [watch for watch in self.parts if not watch.joining and not watch.released]

    @property
    def joiners(self) -> list[PartWatch]:
        """Those that are to become members."""
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

    def settle(self, roster: Roster) -> None:
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
        """Of the parts that may still have something to say."""
        return [watch.part.folder for watch in self.parts if not watch.over]

    @property
    def over(self) -> bool:
        """Whether nothing more comes of any part."""
        return all(watch.over for watch in self.parts)

    @property
    def broken(self) -> bool:
        """Whether one part has failed or is lost while others go on."""
        return not self.over and any(
            watch.lost or isinstance(watch.end, (Failed, Stopped)) for watch in self.members
        )

    @property
    def unread(self) -> bool:
        """Whether it was watched before a restart, and not all was read that its agents wrote."""
        return not self.over and any(watch.log.again for watch in self.members)

    @property
    def node_lost(self) -> bool:
        """Whether a node went down under it."""
        return any(watch.node_lost for watch in self.members)

    # ---- news

    def read(self, now: float) -> list[Event]:
        """What its agents wrote down since the last call."""
        for watch in self.parts:
            if watch.over:
                continue
            try:
                watch.listen(now)
                self._unsaid += watch.log.events(partial(self._read, watch))
            except (WireError, OSError) as error:
                if isinstance(error, OSError) and error.errno in MACHINE_WIDE:
                    raise
                watch.end = Failed(*self.gang.key, f"quarantined: {error}")
        events, self._unsaid = self._unsaid, []
        return [*self._begin(), *events]

    def _begin(self) -> list[Event]:
        if self.started or not all(watch.started for watch in self.members):
            return []
        self.started = True
        return [Started(self.gang.job, self.gang.attempt)]

    def _read(self, watch: PartWatch, line: dict[str, Any]) -> Iterator[Event]:
        job, attempt = self.gang.key
        match line["event"]:
            case "started":
                watch.started = True
            case "ended":
                watch.released = line["outcome"] == RELEASED
                watch.end, watch.ended_at = read_end(job, attempt, line), float(line["at"])
            case "resizable":
                self.several = bool(line["several"])
                yield read_resize(job, attempt, line)
            case "meeting" | "built" | "adopted" | "dropped" | "gone":
                self.notes.append(read_note(line))
            case "health":
                health, owner = read_health(line), _writer_of(watch.part.folder)
                witness = None if owner == os.geteuid() else owner
                self.health.append(replace(health, node=watch.part.node, witness=witness))
            case _:
                yield from read_line(job, attempt, line)

    # ---- its end

    def lose(self, nodes: Collection[NodeId], why: str, of: Gang | None = None) -> None:
        """These nodes are gone, and the parts on them; only those of a gang where one is given."""
        for watch in self.parts if of is None else self.of_gang(of):
            if watch.part.node in nodes:
                if not watch.joining:
                    self._went_down = self._went_down or why
                watch.lose(why, node_lost=True)

    def revoke(self, folder: Path) -> None:
        """No agent ever took the part in this folder, nor will: it has stopped there."""
        for watch in self.parts:
            if watch.part.folder == folder and watch.end is None:
                watch.end = Stopped(self.gang.job, self.gang.attempt)

    def note_failure(self) -> None:
        """It fell apart before anyone asked it to stop: that is how it ended."""
        self._failed_first = True

    def verdict(self, *, asked: bool) -> list[Event]:
        """How it ended, of an attempt that is over; `asked` says that it was to stop."""
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
        """Whether it had ended by itself when it was asked to stop, as rank 0 reports."""
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
    """Whether a signal ended it: a manager that loses a node ends the ranks on the others."""
    return isinstance(watch.end, Failed) and watch.end.code in (-signal.SIGTERM, -signal.SIGKILL)
