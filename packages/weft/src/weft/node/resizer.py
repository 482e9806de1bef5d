"""Changes of an attempt's ranks while they train: the agent's part.

The engine brings a change on (`weft.engines.fleet.resizing`): it has new ranks started, by agents
of their own or by this one, tells agents in `change.json` what to tell their ranks, and reads in
their logs what these answered; the old ranks alone decide whether they switch. So a change survives
the service. The agent keeps the list of the attempt's ranks: only the end of such a process is that
of the attempt.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from weft.base.messages import (
    Adopted,
    Built,
    CanResize,
    Drop,
    Dropped,
    FromAgent,
    FromRank,
    GroupPlan,
    Leaving,
)
from weft.frozen import frozen
from weft.node.attempt_log import Journal
from weft.node.ranks.command_plan import find_free_port
from weft.node.ranks.rank import Rank, pids_of
from weft.wire.attempt import CHANGE, AttemptSpec, read_json

LEAVE_S = 10.0  # what a rank that has left may take to be gone
ResizeMessage = CanResize | Built | Adopted | Dropped | Leaving


class AgentPort(Protocol):
    """The agent as its resizer uses it."""

    def start_new(self, number: int, spec: AttemptSpec, local: int, env: Mapping[str, str]) -> None:
        """Start one more rank beside the others."""
        ...

    def send_to_rank(self, number: int, message: FromAgent) -> None:
        """Say something to a rank."""
        ...

    def apply_spec(self, spec: AttemptSpec, places: Mapping[int, int]) -> None:
        """The attempt is what `spec` says from now on; ranks by their place in its devices."""
        ...


@frozen
class _Next:
    """The attempt after the change: `spec` says all that its agent must know of it by then.

    `places` are the ranks by number, with their place among the devices; those of `new` are
    started by this agent.
    """

    epoch: int
    spec: AttemptSpec
    places: Mapping[int, int]
    new: tuple[int, ...]


class Resizer:
    """The ranks of one part, and those of the whole attempt by number, in the order of ranks."""

    def __init__(
        self,
        folder: Path,
        spec: AttemptSpec,
        journal: Journal,
        ranks: Mapping[int, Rank],
        agent: AgentPort,
    ) -> None:
        self._folder, self._spec, self._journal = folder, spec, journal
        self._ranks, self._agent = ranks, agent
        self.stopping = self._able = self._adopted = False
        self._own: list[int] = []
        self._next: _Next | None = None
        self._undoing = False
        self._joining = bool(spec.join)
        self.members = [] if spec.join else [*range(max(spec.world_size, 1))]
        self._form: GroupPlan | None = None
        self._drop: Drop | None = None
        self._formers: set[int] = set()  # the ranks that were told to form
        self._request: dict[str, Any] | None = None
        self._switched = float("inf")

    @property
    def changing(self) -> bool:
        """True if ranks of two epochs may be here."""
        return self._next is not None

    def rank_of(self, number: int) -> int:
        """The rank of a process now; its number if it is none."""
        return self.members.index(number) if number in self.members else number

    def set_first_ranks(self, numbers: list[int]) -> None:
        """The ranks that were started here, one for each device; none where a launcher has them."""
        self._own = numbers
        if not numbers:
            self.members = []

    def join_variables(self, number: int) -> dict[str, str]:
        """The place of a process, as variables; none for those that begin together."""
        spec = self._spec
        return _join_variables(spec.join, spec.members, number) if spec.join else {}

    @property
    def first(self) -> int:
        """The number of rank 0 if it is here, else of our first."""
        ours = [number for number in self.members if number in self._own]
        return ours[0] if ours else self._spec.first_rank

    @property
    def released(self) -> tuple[str, str] | None:
        """The end of a part whose ranks are none of the attempt's; None if one was to its end."""
        if self._joining or (self._own and not {*self._own} & {*self.members}):
            return "released", ""
        return None

    def is_member(self, number: int) -> bool:
        """True if the end of a process is that of the attempt."""
        return not self._joining and (not self.members or number in self.members)

    # ---- what is heard

    def on_message(self, number: int, message: FromRank) -> bool:
        """Act on a rank's message; True if it was about a change."""
        if not isinstance(message, ResizeMessage):
            return False
        form = self._form
        match message:
            case CanResize(state_gb, several):
                alone = len(self._own) != len(self._spec.devices)  # one process has them all
                if not (self._able or alone) and self._spec.most_ranks:
                    self._able = True
                    self._journal.write("resizable", state_gb=state_gb, several=several)
            case Built(epoch):
                self._journal.write("built", epoch=epoch, number=number)
            case Adopted(epoch, step, pause_s):
                adopted = {"number": number, "step": step, "pause_s": pause_s}
                self._journal.write("adopted", epoch=epoch, **adopted)
                late = self._next is not None and self._next.epoch != epoch
                if form is not None and epoch == form.epoch and not late:
                    self._adopted = True
                    self._switch(form)
            case Leaving("resized"):
                # An old rank leaves only when all have agreed.
                if form is not None and number in self.members and number not in form.members:
                    self._journal.write("adopted", epoch=form.epoch, number=number)
                    self._switch(form)
            case Dropped(epoch, reason):
                self._journal.write("dropped", epoch=epoch, number=number, reason=reason)
        return True

    def _switch(self, form: GroupPlan) -> None:
        """The ranks of this change are the attempt from here on."""
        if self._switched < float("inf"):
            return
        self._joining = False
        self.members, self._switched = [*form.members], time.monotonic()
        stay = [number for number in self._own if number in self.members]
        if self._next is None and stay and len(stay) < len(self._own):
            places = [self._own.index(number) for number in stay]
            spec = self._spec
            self._spec = replace(
                spec,
                devices=tuple(spec.devices[at] for at in places),
                cores=tuple(spec.cores[at] for at in places if at < len(spec.cores)),
            )
            self._own = stay
            self._agent.apply_spec(self._spec, {number: at for at, number in enumerate(stay)})

    def exited(self, number: int, code: int) -> bool:
        """A process is gone; whether that is nothing but this, and no end of the attempt."""
        if self.is_member(number):
            return False
        self._journal.write("gone", number=number, code=code)
        return True

    # ---- what is done

    def read_request(self) -> None:
        """Look for a request."""
        request = read_json(self._folder / CHANGE)
        if request is None or request == self._request:
            return
        self._request, epoch = request, int(request["epoch"])
        if "form" in request:
            if self._form is None or epoch > self._form.epoch:
                self._tell_form(GroupPlan(**_as_tuples(request["form"])))
        elif "drop" in request:
            self._tell_drop(epoch, str(request["drop"]))
        elif "undo" in request:
            self._undoing = self._next is not None and self._next.epoch == epoch
            if not self._undoing:  # it was written over the request to begin
                self._journal.write("undone", epoch=epoch)
        elif "meet" in request:
            self._journal.write("meeting", epoch=epoch, store=self._find_store(epoch))
            if "spec" in request and (self._next is None or self._next.epoch < epoch):
                self._start_new(epoch, request)

    def _find_store(self, epoch: int) -> str:
        """The address where ranks can meet: a file, where all of them are on this machine."""
        if not self._spec.part:
            return str(Path(self._spec.checkpoints) / f".ranks-{self._spec.attempt}-{epoch}")
        address = self._spec.address or self._spec.master_addr
        return f"tcp://{address}:{find_free_port(address)}"

    def _start_new(self, epoch: int, request: Mapping[str, Any]) -> None:
        """Start ranks beside ours; those that cannot be are as if the old ones had not agreed."""
        spec, members = AttemptSpec.of(request["spec"]), tuple(request["numbers"])
        devices = zip(members, request["gpus"], strict=True)
        places = {number: spec.devices.index(device) for number, device in devices}
        new = tuple(number for number in members if number not in self.members)
        self._switched, self._adopted = float("inf"), False  # what was said of the change before
        self._next = _Next(epoch, spec, places, new)
        self._own = [*self._own, *new]
        for number in new:
            try:
                more = _join_variables(epoch, members, number)
                self._agent.start_new(number, spec, places[number], more)
            except OSError as error:
                why = f"new rank {number} could not be started: {error}"
                self._journal.write("dropped", epoch=epoch, number=number, reason=why)
                return

    def repeat(self, number: int) -> None:
        """Tell a rank whose line was broken what it may have missed of the last change."""
        for message in (self._form, self._drop):
            if message is not None and number in self._formers:
                self._agent.send_to_rank(number, message)

    def _tell_drop(self, epoch: int, why: str) -> None:
        """Tell our ranks; we answer for those that were never told to form the groups.

        Without them no rank can switch, and they would say nothing of a change that they do not
        know.
        """
        ours, self._drop = {*self.members} & {*self._ranks}, Drop(epoch, why)
        for number in ours:
            self._agent.send_to_rank(number, self._drop)
        if ours and (self._form is None or self._form.epoch < epoch):
            self._journal.write("dropped", epoch=epoch, number=min(ours), reason=why)

    def _tell_form(self, form: GroupPlan) -> None:
        self._form, self._switched, self._adopted = form, float("inf"), False
        self._drop, self._formers = None, {*self._ranks}
        for number in self._formers:
            self._agent.send_to_rank(number, form)

    def poll(self) -> None:
        """End ranks that are to be gone and are not, and settle when all of them are."""
        if time.monotonic() > self._switched + LEAVE_S:
            self._kill(number for number in self._ranks if number not in self.members)
        change = self._next
        if change is None:
            return
        over = not any(number in self._ranks for number in self.members)
        if self._switched < float("inf"):
            if not self._adopted:  # no other ranks are left to go on
                if time.monotonic() > self._switched + change.spec.resize_limit_s:
                    self._kill(change.new)
            elif not any(number not in self.members for number in self._ranks):
                self._spec, self._own = change.spec, [*change.places]
                self._close(change, change.places, "settled")
        elif (over or self._undoing) and not self._kill(change.new):
            self._own = [number for number in self._own if number not in change.new]
            places = {number: place for place, number in enumerate(self._own)}
            self._close(change, places, "undone")

    def _close(self, change: _Next, places: Mapping[int, int], event: str) -> None:
        """The attempt is what its description says, and only its ranks are here."""
        self._next, self._undoing = None, False
        with suppress(OSError):
            Path(self._find_store(change.epoch)).unlink(missing_ok=True)
        self._agent.apply_spec(self._spec, places)
        self._journal.write(event, epoch=change.epoch, ranks=pids_of(self._ranks))

    def _kill(self, numbers: Iterable[int]) -> bool:
        """End these; whether any is still there."""
        there = [self._ranks[number] for number in numbers if number in self._ranks]
        for rank in there:
            rank.signal(signal.SIGKILL)
        return bool(there)


def _join_variables(epoch: int, members: Sequence[int], number: int) -> dict[str, str]:
    place = str(members.index(number))
    return {"RANK": place, "WEFT_MEMBER": str(number), "WEFT_JOIN": str(epoch)}


def _as_tuples(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(it) if isinstance(it, list) else it for name, it in body.items()}
