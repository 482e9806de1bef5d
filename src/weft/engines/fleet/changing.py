"""One change of an attempt's ranks as they train: what is known about it, and what follows. Pure.

The engine brings it on and the ranks decide. Until they are asked to form the groups of the next
epoch the engine may give up; from then on it asks, and waits for what the old ranks say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from weft.engines.fleet.gang import Note, PartWatch
from weft.engines.fleet.roster import Change


class Move(StrEnum):
    """What the engine does next."""

    WAIT = "wait"
    FORM = "form"  # tell all ranks to form the next epoch's groups
    DROP = "drop"  # tell the old ones that it is not to be
    END = "end"  # end those that were to join
    FAIL = "fail"  # nothing of it is left: say so
    FINISH = "finish"  # the ranks that left are gone: report it


@dataclass(slots=True)
class Changing:
    """A change under way; times are of this machine's own clock.

    `resumed` says that a service before us began it, `refused` that the manager will not have those
    that join. `store` is where ranks can meet, `asked` when they were asked to. `failed` is why it
    cannot be, `superseded` that it is not wanted any more.
    """

    change: Change
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
    failed: str = ""
    superseded: bool = False
    ended: float = float("-inf")  # when those that join were last ended

    def hear(self, note: Note) -> None:
        """What an agent wrote of a change."""
        number, what = note.number, note.event
        if what == "gone":
            self.gone.add(number)
            if number in self.change.new and not self.adopted:
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
            if number not in self.change.new or not self.pause_s:
                self.pause_s = max(self.pause_s, note.pause_s)
        elif what == "dropped":
            self.dropped = True
            self.failed = self.failed or note.text or "the old ranks did not agree"

    def next_move(
        self,
        joiners: Collection[PartWatch],
        now: float,
        *,
        ending: bool,
        joiners_gone: bool,
        leavers_gone: bool,
    ) -> Move:
        """What follows. `ending`: the attempt is being ended, or has come to its end."""
        if self.adopted:
            return Move.FINISH if leavers_gone else Move.WAIT
        self._find_fault(joiners, now, ending=ending)
        if not self.failed and not self.superseded:
            ready = self.store and self.built >= {*self.change.new}
            return Move.FORM if ready and not self.asked else Move.WAIT
        if self.asked and not self.dropped and not ending:
            return Move.WAIT if self.dropping else Move.DROP
        over = all(watch.over for watch in joiners)
        return Move.FAIL if over and joiners_gone else Move.END

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
