"""Changes of an attempt's ranks while they train: the agent's part.

A request names the next epoch and everything an agent must know of an attempt on the new devices.
New ranks are started beside the old ones, and asked to join. When all are built, every rank is
asked to form the next epoch's groups; the old ranks alone decide whether they switch. What they say
is written down: `resized` when those that left are gone, `resize_failed` when the new ones are. A
newer request takes the place of one that is not decided yet.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from weft.node.attempt_log import Journal
from weft.node.ranks.rank import Rank, pids_of
from weft.wire.attempt import RESIZE, AttemptSpec, read_json
from weft.wire.messages import (
    Adopted,
    Built,
    CanResize,
    Drop,
    Dropped,
    Form,
    FromAgent,
    FromRank,
    Leaving,
)

LEAVE_S = 10.0  # what a rank that has left may take to be gone
ResizeMessage = CanResize | Built | Adopted | Dropped | Leaving


class AgentPort(Protocol):
    """What an agent does for it."""

    def start_new(self, number: int, spec: AttemptSpec, local: int, env: Mapping[str, str]) -> None:
        """Start one more rank beside the others."""
        ...

    def tell(self, number: int, message: FromAgent) -> None:
        """Say something to a rank."""
        ...

    def settle_in(self, spec: AttemptSpec, places: Mapping[int, int]) -> None:
        """The attempt is what `spec` says from now on; ranks by their place in its devices."""
        ...


@dataclass(slots=True)
class _Change:
    """The next epoch as far as it has come; `verdict` is what the old ranks said."""

    epoch: int
    spec: AttemptSpec
    form: Form
    began: float
    asked: float = 0.0  # when all were built, and asked to form the groups
    built: set[int] = field(default_factory=set)
    dropping: bool = False
    superseded: bool = False
    failed: str = ""
    dropped: bool = False
    left_at: float = 0.0  # when an old rank had left, which it does if all agreed
    adopted: Adopted | None = None
    adopted_at: float = 0.0


class Members:
    """The ranks of an attempt by number, in the order of their ranks, as one agent knows them."""

    def __init__(
        self,
        folder: Path,
        spec: AttemptSpec,
        journal: Journal,
        ranks: Mapping[int, Rank],
        hands: AgentPort,
    ) -> None:
        self._folder, self._spec, self._journal = folder, spec, journal
        self._ranks, self._hands = ranks, hands
        self.members: list[int] = []
        self._able = False
        self.stopping = False
        self._prepare()

    def _prepare(self) -> None:
        """Begin with what a kind of resizer knows besides."""

    def rank_of(self, number: int) -> int:
        """What rank a process is now; its number if it is none."""
        return self.members.index(number) if number in self.members else number


class Resizer(Members):
    """The ranks of an attempt that has one agent, and their next epoch."""

    def _prepare(self) -> None:
        self._device_of: dict[int, int] = {}
        self._next_number = 0
        self._several = False
        self._seen = 0
        self._asked: tuple[int, AttemptSpec] | None = None
        self._now: _Change | None = None

    def begin(self, numbers: list[int]) -> None:
        """The first ranks, one for each device."""
        self.members = numbers
        self._next_number = max(numbers, default=-1) + 1
        if len(numbers) == len(self._spec.devices):
            self._device_of = dict(zip(numbers, self._spec.devices, strict=True))

    @property
    def first(self) -> int:
        """The number of the process that is rank 0 now."""
        return self.members[0] if self.members else self._spec.first_rank

    @property
    def changing(self) -> bool:
        """Whether ranks of two epochs are there."""
        return self._now is not None

    released: tuple[str, str] | None = None  # the last rank is always one of the attempt's

    def join_variables(self, number: int) -> dict[str, str]:  # noqa: ARG002 - `_plan` tells them
        """Nothing for the ranks that begin together."""
        return {}

    def is_member(self, number: int) -> bool:
        """Whether the end of a process is that of the attempt."""
        return not self.members or number in self.members

    # ---- what is heard

    def hear(self, number: int, message: FromRank) -> bool:
        """What a rank said; whether it was about this."""
        if not isinstance(message, ResizeMessage):
            return False
        change = self._now
        match message:
            case CanResize(state_gb, several):
                if not self._able and self._device_of:
                    self._able, self._several = True, several
                    self._journal.write("resizable", state_gb=state_gb)
            case Built(epoch) if change is not None and epoch == change.epoch:
                change.built.add(number)
            case Adopted(epoch) if change is not None and epoch == change.epoch:
                self._hear_adopted(change, number, message)
            case Leaving("resized") if change is not None:
                self._hear_left(change, number)
            case Dropped(epoch, reason) if change is not None and epoch == change.epoch:
                change.dropped = True
                change.failed = change.failed or reason or "the old ranks did not agree"
        self.look()
        return True

    def _hear_adopted(self, change: _Change, number: int, adopted: Adopted) -> None:
        if change.adopted is None:
            change.adopted, change.adopted_at = adopted, time.monotonic()
            self._journal.write("epoch", epoch=change.epoch, step=adopted.step)
            self.members = [*change.form.members]
        elif number == self.members[0] and adopted.pause_s > change.adopted.pause_s:
            change.adopted = adopted

    def _hear_left(self, change: _Change, number: int) -> None:
        """An old rank leaves only when all have agreed: the new ones are the attempt from here on.

        It may be gone before they say so, or they may die before.
        """
        if number in self.members and number not in change.form.members:
            change.left_at = time.monotonic()
            self.members = [*change.form.members]

    def exited(self, number: int, code: int) -> bool:
        """A process is gone; whether that is nothing but this, and no end of the attempt."""
        change = self._now
        if self.is_member(number):
            return False
        if change is not None and change.adopted is None:
            why = f"new rank {number} ended with exit code {code} before it had joined"
            change.failed = change.failed or why
        return True

    # ---- what is done

    def take_up(self) -> None:
        """Look for a request."""
        request = read_json(self._folder / RESIZE)
        if request is None or int(request["epoch"]) <= self._seen:
            return
        self._seen = int(request["epoch"])
        self._asked = (self._seen, AttemptSpec.of(request["spec"]))
        if self._now is not None:
            self._now.superseded = True

    def look(self) -> None:
        """Bring the present change on, or begin the next one."""
        if self._now is not None and not any(number in self._ranks for number in self.members):
            self._kill(self._now.form.new)  # the attempt is over: no rank will switch
            return
        if self._now is not None:
            self._bring_on(self._now)
        if self._now is None and self._asked is not None and not self.stopping:
            (epoch, spec), self._asked = self._asked, None
            self._plan(epoch, spec)

    def _plan(self, epoch: int, spec: AttemptSpec) -> None:
        if why := self._find_obstacle(spec):
            self._journal.write("resize_failed", epoch=epoch, reason=why)
            return
        there = {self._device_of[number]: number for number in self.members}
        kept = [number for number in self.members if self._device_of[number] in spec.devices]
        added = [device for device in spec.devices if device not in there]
        new = tuple(range(self._next_number, self._next_number + len(added)))
        self._next_number += len(new)
        members = (*kept, *new)
        sources = (tuple(kept) or tuple(self.members)) if new else ()
        store = Path(spec.checkpoints) / f".ranks-{spec.attempt}-{epoch}"
        form = Form(epoch, members, new, sources, str(store))
        self._now = change = _Change(epoch, spec, form, time.monotonic())
        self._journal.write("resizing", epoch=epoch, members=members, new=new)
        for number, device in zip(new, added, strict=True):
            self._device_of[number] = device
            local = spec.devices.index(device)
            message = {
                "RANK": str(members.index(number)),
                "WEFT_MEMBER": str(number),
                "WEFT_JOIN": str(epoch),
            }
            try:
                self._hands.start_new(number, spec, local, message)
            except OSError as error:
                change.failed = f"new rank {number} could not be started: {error}"
                break
        self._bring_on(change)

    def _find_obstacle(self, spec: AttemptSpec) -> str:
        if not self._able:
            return "its ranks cannot change as they train"
        if not self._several and max(len(self.members), len(spec.devices)) > 1:
            return "only a single rank is moved live on GPUs"
        if [*spec.devices] == [self._device_of[number] for number in self.members]:
            return "it has these devices already"
        return ""

    def _bring_on(self, change: _Change) -> None:
        if change.adopted is not None:
            self._finish(change, change.adopted)
            return
        now, limit_s = time.monotonic(), change.spec.resize_limit_s
        if change.left_at:
            if now > change.left_at + limit_s:
                self._kill(change.form.new)  # no other ranks are left to go on
            return
        if self.stopping:
            change.failed = change.failed or "the attempt is stopped"
        if not change.asked and not change.failed and not change.superseded:
            if change.built >= {*change.form.new}:
                self._ask(change, now)
            elif now > change.began + limit_s:
                change.failed = f"its new ranks were not ready within {limit_s:g} s"
        if change.asked and not change.failed and now > change.asked + limit_s:
            change.failed = f"its ranks did not switch within {limit_s:g} s"
        if change.failed or change.superseded:
            self._undo(change)

    def _ask(self, change: _Change, now: float) -> None:
        change.asked = now
        for number in {*self.members, *change.form.new}:
            self._hands.tell(number, change.form)

    def _undo(self, change: _Change) -> None:
        """New ranks are ended once no old one can switch any more."""
        if change.asked and not change.dropped:
            if not change.dropping:
                change.dropping = True
                for number in self.members:
                    self._hands.tell(number, Drop(change.epoch, change.failed))
            return
        if self._kill(change.form.new):
            return
        self._close(change)
        self._hands.settle_in(self._spec, self._find_places(self._spec))
        if not change.superseded:
            self._journal.write("resize_failed", epoch=change.epoch, reason=change.failed)

    def _finish(self, change: _Change, adopted: Adopted) -> None:
        """Those that left are gone: the devices are free."""
        left = [number for number in self._ranks if number not in self.members]
        if left:
            if time.monotonic() > change.adopted_at + LEAVE_S:
                self._kill(tuple(left))
            return
        self._spec = change.spec
        self._hands.settle_in(change.spec, self._find_places(change.spec))
        self._close(change)
        self._journal.write(
            "resized",
            epoch=change.epoch,
            step=adopted.step,
            pause_s=adopted.pause_s,
            prepare_s=change.asked - change.began if change.form.new else 0.0,
            ranks=pids_of(self._ranks),
        )

    def _find_places(self, spec: AttemptSpec) -> dict[int, int]:
        return {number: spec.devices.index(self._device_of[number]) for number in self.members}

    def _close(self, change: _Change) -> None:
        self._now = None
        with suppress(OSError):
            Path(change.form.store).unlink(missing_ok=True)

    def _kill(self, numbers: tuple[int, ...]) -> bool:
        """End these; whether any is still there."""
        alive = [self._ranks[number] for number in numbers if number in self._ranks]
        for rank in alive:
            rank.signal(signal.SIGKILL)
        return bool(alive)
