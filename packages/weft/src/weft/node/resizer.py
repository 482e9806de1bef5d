"""Changes of an attempt's ranks while they train, as seen by one agent of several.

The engine brings a change on (`weft.engines.fleet.resizing`): it has agents started for new ranks,
tells all agents in `change.json` what to tell their ranks, and reads in their logs what these
answered. So a change survives the service. The agent keeps the list of the attempt's ranks: only
the end of such a process is that of the attempt.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.node.attempt_log import Journal
from weft.node.ranks.command_plan import find_free_port
from weft.node.ranks.rank import Rank
from weft.node.resizer import LEAVE_S, AgentPort, Members, ResizeMessage, Resizer
from weft.wire.attempt import CHANGE, AttemptSpec, read_json
from weft.wire.messages import (
    Adopted,
    Built,
    CanResize,
    Drop,
    Dropped,
    Form,
    FromRank,
    Leaving,
)


def make_resizer(
    folder: Path,
    spec: AttemptSpec,
    journal: Journal,
    ranks: Mapping[int, Rank],
    hands: AgentPort,
) -> Resizer | GangResizer:
    """For an agent alone, or for one of several."""
    kind = GangResizer if spec.part else Resizer
    return kind(folder, spec, journal, ranks, hands)


class GangResizer(Members):
    """The ranks of one part, and those of the whole attempt by number, in the order of ranks."""

    changing = False  # ranks of a part come or go, but never both

    def _prepare(self) -> None:
        self._own: list[int] = []
        spec = self._spec
        self._joining = bool(spec.join)
        self.members = [] if spec.join else [*range(max(spec.world_size, 1))]
        self._form: Form | None = None
        self._request: dict[str, Any] | None = None
        self._switched = float("inf")

    def begin(self, numbers: list[int]) -> None:
        """The ranks that were started here, one for each device; none where a launcher has them."""
        self._own = numbers
        if not numbers:
            self.members = []

    def join_variables(self, number: int) -> dict[str, str]:
        """The place of a process, as variables; none for those that begin together."""
        if not self._spec.join:
            return {}
        return {
            "RANK": str(self._spec.members.index(number)),
            "WEFT_MEMBER": str(number),
            "WEFT_JOIN": str(self._spec.join),
        }

    @property
    def first(self) -> int:
        """The number of rank 0 if it is here, else of our first."""
        ours = [number for number in self.members if number in self._own]
        return ours[0] if ours else self._spec.first_rank

    @property
    def released(self) -> tuple[str, str] | None:
        """How a part ends whose ranks are none of the attempt's; None if one was to its end."""
        if self._joining or (self._own and not {*self._own} & {*self.members}):
            return "released", ""
        return None

    def is_member(self, number: int) -> bool:
        """Whether the end of a process is that of the attempt."""
        return not self._joining and (not self.members or number in self.members)

    # ---- what is heard

    def hear(self, number: int, message: FromRank) -> bool:
        """What a rank said; whether it was about this."""
        if not isinstance(message, ResizeMessage):
            return False
        form = self._form
        match message:
            case CanResize(state_gb, several):
                if not self._able and self._spec.most_ranks:
                    self._able = True
                    self._journal.write("resizable", state_gb=state_gb, several=several)
            case Built(epoch):
                self._journal.write("built", epoch=epoch, number=number)
            case Adopted(epoch, step, pause_s):
                adopted = {"number": number, "step": step, "pause_s": pause_s}
                self._journal.write("adopted", epoch=epoch, **adopted)
                if form is not None and epoch == form.epoch:
                    self._switch(form)
            case Leaving("resized"):
                # An old rank leaves only when all have agreed.
                if form is not None and number in self.members and number not in form.members:
                    self._journal.write("adopted", epoch=form.epoch, number=number)
                    self._switch(form)
            case Dropped(epoch, reason):
                self._journal.write("dropped", epoch=epoch, number=number, reason=reason)
        return True

    def _switch(self, form: Form) -> None:
        """The ranks of this change are the attempt from here on."""
        if self._switched < float("inf"):
            return
        self._joining = False
        self.members, self._switched = [*form.members], time.monotonic()
        stay = [number for number in self._own if number in self.members]
        if stay and len(stay) < len(self._own):
            places = [self._own.index(number) for number in stay]
            spec = self._spec
            self._spec = replace(
                spec,
                devices=tuple(spec.devices[at] for at in places),
                cores=tuple(spec.cores[at] for at in places if at < len(spec.cores)),
            )
            self._own = stay
            self._hands.settle_in(self._spec, {number: at for at, number in enumerate(stay)})

    def exited(self, number: int, code: int) -> bool:
        """A process is gone; whether that is nothing but this, and no end of the attempt."""
        if self.is_member(number):
            return False
        self._journal.write("gone", number=number, code=code)
        return True

    # ---- what is done

    def take_up(self) -> None:
        """Look for a request."""
        request = read_json(self._folder / CHANGE)
        if request is None or request == self._request:
            return
        self._request, epoch = request, int(request["epoch"])
        if "form" in request:
            if self._form is None or epoch > self._form.epoch:
                self._tell_form(Form(**_as_tuples(request["form"])))
        elif "drop" in request:
            self._tell_drop(epoch, str(request["drop"]))
        elif "meet" in request:
            address = self._spec.address or self._spec.master_addr
            where = {"address": address, "port": find_free_port(address)}
            self._journal.write("meeting", epoch=epoch, **where)

    def _tell_drop(self, epoch: int, why: str) -> None:
        """Tell our ranks; we answer for those that were never told to form the groups.

        Without them no rank can switch, and they would say nothing of a change that they do not
        know.
        """
        ours = {*self.members} & {*self._ranks}
        for number in ours:
            self._hands.tell(number, Drop(epoch, why))
        if ours and (self._form is None or self._form.epoch < epoch):
            self._journal.write("dropped", epoch=epoch, number=min(ours), reason=why)

    def _tell_form(self, form: Form) -> None:
        self._form, self._switched = form, float("inf")
        for number in self._ranks:
            self._hands.tell(number, form)

    def look(self) -> None:
        """End ranks that are to be gone and are not."""
        if time.monotonic() > self._switched + LEAVE_S:
            for number, rank in self._ranks.items():
                if number not in self.members:
                    rank.signal(signal.SIGKILL)


def _as_tuples(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(it) if isinstance(it, list) else it for name, it in body.items()}
