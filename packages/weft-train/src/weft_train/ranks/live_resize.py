"""One rank's part in a change of the ranks as they train: make before break.

New ranks run the script up to its first epoch while the old ones train on, and rehearse a step.
Then all form the groups of the next epoch, in threads, and the old ranks alone agree by their
control sum on the step after which they switch: each source sends its new ranks the state, and a
vote of the old ranks is the commit. Whatever goes wrong before it, the old ranks train on as they
were.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from weft_train.base.environment import Environment
from weft_train.base.garbage import no_collection
from weft_train.base.messages import Adopted, Built, CanResize, Drop, Dropped, GroupPlan, Stop
from weft_train.checkpoints import rng_state
from weft_train.ranks import groups
from weft_train.ranks.gang import RankGang
from weft_train.ranks.rehearsal import CallShapes, rehearse
from weft_train.ranks.self_test import Ability, find_ability
from weft_train.ranks.shards import ShardPlan, Shards, exchange, list_everyone
from weft_train.ranks.transfer import receive_state, receive_verdict, send_state, send_verdict
from weft_train.reports import Reports

log = logging.getLogger(__name__)

REHEARSE_S = 600.0  # what new ranks may take for a first pass: the agent gives them up before
FORM_S = 20.0  # what groups may take to be formed
SEND_S, SEND_GB_S = 15.0, 10.0  # what an old rank waits for a new one to take what it is sent
WAIT_S = 3600.0  # what a new rank waits for the old ones to come to the end of a step
GANG_S = 600.0
LOOK_S = 0.005


class ResizableTraining(Protocol):
    """The training whose ranks change."""

    def collect_state(self) -> dict[str, Any]:
        """All that a new rank must have."""
        ...

    def take_state(self, state: dict[str, Any]) -> None:
        """Load the state that another rank collected."""
        ...


class ShardedTraining(ResizableTraining, Protocol):
    """The training whose state is divided over its ranks, in another way by another number."""

    def parts(self) -> Shards:
        """Shards of the state on this rank, by name."""
        ...

    def divide_again(self, ranks: int, group: Any) -> Shards:
        """Divide the model once more beside the one that trains; its parts, to be filled."""
        ...

    def settle_parts(self, *, good: bool) -> None:
        """Train on with what was divided and filled, or without it."""
        ...


@dataclass(slots=True)
class _Formed:
    """The groups of an epoch; `transfer` is of the sources and the new ranks, in this order.

    `store` is where others may still be about to meet. `shards` are of old and new ranks, `old`
    their numbers, where each has a part of the state.
    """

    store: Any = None
    data: Any = None
    control: Any = None
    transfer: Any = None
    shards: Any = None
    old: tuple[int, ...] = ()
    taken: Shards = field(default_factory=dict)  # of a new rank, to be filled

    @property
    def groups(self) -> list[Any]:
        """Groups that were formed."""
        every = (self.data, self.control, self.transfer, self.shards)
        return [group for group in every if group is not None]


class LiveResize:
    """The part of this rank in changing to the next epoch of ranks.

    `wanted` says that ranks may come and go, `epoch` is the last one that this rank adopted.
    """

    def __init__(self, env: Environment, gang: RankGang, reports: Reports) -> None:
        self._me = env.number
        self._gang, self._reports = gang, reports
        asked = bool(env.most_ranks and env.agent) and not env.coordinator
        able = _agree_on_ability(gang) if asked else Ability()
        self.wanted = asked and not (able.several if gang.size > 1 else able.alone)
        self.wraps = self.wanted and env.most_ranks > 1 and not able.several
        if asked and gang.rank == 0 and able.several:
            what = "another number of GPUs" if self.wanted else "other GPUs"
            reports.report_restart(able.several, what)
        self.sharded: ShardedTraining | None = None
        self._members = tuple(range(gang.size))
        self.shapes = CallShapes()
        self._model: torch.nn.Module | None = None
        self._plan: GroupPlan | None = None
        self._later: deque[GroupPlan] = deque()
        self._last = 0  # the last epoch that it was asked to form
        self._formed: _Formed | None = None
        self._why = ""
        self._state_gb, self._patience_s = 0.0, SEND_S
        self._lock = threading.Lock()

    # ---- before and between

    def first_group(self) -> Any:
        """The group that a model averages over at first; None for torch's own."""
        if self._gang.alone:
            self._gang.data = groups.form_alone("weft-0-alone", self._gang.device)
        return self._gang.data

    def offer(self, state_gb: float) -> None:
        """Training begins: ranks may come and go."""
        self._state_gb, self._patience_s = state_gb, SEND_S + SEND_GB_S * state_gb
        if self.wraps and self._gang.alone and self._gang.device.type == "cuda":
            self._load_nccl()
        if self.wanted and self._gang.rank == 0:
            self._reports.say(CanResize(state_gb, self.wraps))

    def _load_nccl(self) -> None:
        try:
            groups.load_nccl(self._gang.device)
        except RuntimeError as error:  # training needs no peers yet
            log.warning("NCCL was not loaded beforehand: %s", _first_line(error))

    def on_message(self, message: GroupPlan | Drop) -> None:
        """Handle a message of the agent about the next epoch."""
        if isinstance(message, GroupPlan):
            if message.epoch > max(self._gang.epoch, self._last):  # else it is repeated
                self._last = message.epoch
                self._later.append(message)
                self._begin()
        elif self._plan is not None and self._plan.epoch == message.epoch:
            self._why = self._why or message.reason or "the agent gave it up"
        else:
            self._later = deque(form for form in self._later if form.epoch != message.epoch)

    @property
    def flags(self) -> tuple[bool, bool]:
        """Return whether this rank could switch, and whether it cannot."""
        if self._plan is None:
            return False, False
        return self._formed is not None and not self._why, bool(self._why)

    def say_cannot_switch(self, why: str) -> None:
        """Say that this rank cannot switch."""
        if self._plan is not None:
            self._why = self._why or why

    # ---- forming, beside training

    def _begin(self) -> None:
        if self._plan is None and self._later:
            self._plan, self._formed, self._why = self._later.popleft(), None, ""
            args = (self._plan, self._patience_s)
            threading.Thread(target=self._form, args=args, name="weft-form", daemon=True).start()

    def _form(self, plan: GroupPlan, patience_s: float) -> None:
        formed, why = _Formed(), ""
        try:
            self._meet(plan, formed, patience_s)
        except (RuntimeError, OSError) as error:
            why = f"its groups were not formed: {_first_line(error)}"
        with self._lock:
            if self._plan is plan:
                self._formed = None if why else formed
                self._why = self._why or why
                return
        groups.retire(formed.groups)

    def _meet(self, plan: GroupPlan, formed: _Formed, patience_s: float) -> None:
        me, members, both = self._me, plan.members, (*plan.sources, *plan.new)
        meets = (me in members and len(members) > 1) or (plan.new and me in both) or self.sharded
        if not meets and plan.host != me:
            self._form_alone(plan, formed)
            return
        store = formed.store = groups.open_store(plan.store, FORM_S, host=plan.host == me)
        name = f"weft-{plan.epoch}"
        if plan.new:
            self._rehearse(plan, store)
        if me in members and len(members) > 1:
            rank, size = members.index(me), len(members)
            formed.data = groups.form(store, f"{name}-data", rank, size, GANG_S, self._gang.device)
            formed.control = groups.form(store, f"{name}-control", rank, size, GANG_S)
        self._form_alone(plan, formed)
        if plan.new and me in both:
            at = both.index(me)
            formed.transfer = groups.connect(store, f"{name}-state", at, len(both), patience_s)
        if self.sharded is not None:
            self._meet_all(plan, formed, patience_s)

    def _meet_all(self, plan: GroupPlan, formed: _Formed, patience_s: float) -> None:
        """Old and new ranks: each has or needs a part of the state."""
        if not self._gang.joining:
            formed.old = self._members
            formed.store.set("old", json.dumps(self._members))
        formed.old = formed.old or tuple(json.loads(formed.store.get("old")))
        everyone = list_everyone(formed.old, plan.members)
        at = everyone.index(self._me)
        name = f"weft-{plan.epoch}-shards"
        formed.shards = groups.connect(formed.store, name, at, len(everyone), patience_s)
        if self.sharded is not None and self._gang.joining:  # while the others train
            formed.taken = self._divide_again(self.sharded, plan, formed)
            formed.store.set(f"divided-{self._me}", b"1")
        if divided := [f"divided-{new}" for new in plan.new]:
            formed.store.wait(divided, dt.timedelta(seconds=REHEARSE_S))

    def _form_alone(self, plan: GroupPlan, formed: _Formed) -> None:
        if plan.members == (self._me,) and self.wraps:
            formed.data = groups.form_alone(f"weft-{plan.epoch}-alone", self._gang.device)

    def _rehearse(self, plan: GroupPlan, store: Any) -> None:
        """New ranks call the model for the first time, and all others wait for that."""
        if self._me == plan.sources[0]:
            store.set(
                "called-with", b"." + self.shapes.packed
            )  # never nothing: it would be waited for
        if self._me in plan.new and self._model is not None:
            rehearse(self._model, store.get("called-with")[1:], self._gang.device)
            store.set(f"rehearsed-{self._me}", b"1")
        rehearsed = [f"rehearsed-{new}" for new in plan.new]
        store.wait(rehearsed, dt.timedelta(seconds=REHEARSE_S))

    # ---- the switch

    def switch(self, job: ResizableTraining, ended: float, step: int) -> bool | None:
        """After a step that all old ranks agreed on: go to the next epoch.

        True if it was adopted, False if all ranks train on as before, None if this rank has left.
        `ended` is when the step was over, by the monotonic clock.
        """
        plan, formed = self._plan, self._formed
        assert plan is not None
        with no_collection():
            self._gang.wait_for_sums()
            why = self._why or self._send(plan, formed, job, ended)
            why = why or self._exchange(plan, formed)
            good = self._gang.vote(not why)
            if self.sharded is not None:
                self.sharded.settle_parts(good=good)
            self._tell(plan, formed, good=good)
        if not good or formed is None:
            self.give_up(why or "another rank could not switch")
            return False
        with self._lock:
            self._plan, self._formed = None, None
        if self._me not in plan.members:
            self._gang.break_off()
            return None
        self._adopt(plan, formed, ended, step)
        self._begin()
        return True

    def give_up(self, why: str = "") -> None:
        """The next epoch will not be; closing its groups tells the new ranks."""
        with self._lock:
            plan, formed = self._plan, self._formed
            why = why or self._why
            self._plan, self._formed, self._why = None, None, ""
        if formed is not None:
            groups.retire(formed.groups)
        if plan is not None:
            self._reports.say(Dropped(plan.epoch, why))
        self._begin()

    def _send(
        self, plan: GroupPlan, formed: _Formed | None, job: ResizableTraining, ended: float
    ) -> str:
        """The state to this rank's own new ranks; why not, if that fails."""
        if formed is None:
            return "its groups are not formed"
        own = [new for source, new in _pairs(plan) if source == self._me]
        if not own:
            return ""
        try:
            message = {
                "state": job.collect_state(),
                "ended": ended,
                "clock": time.time() - time.monotonic(),
                "random": rng_state.capture(self._gang.device),
                "place": (self._gang.rank, self._gang.size),
                "state_gb": self._state_gb,
            }
            both = (*plan.sources, *plan.new)
            to = [both.index(new) for new in own]
            send_state(formed.transfer, to, message, self._gang.device)
        except RuntimeError as error:
            return f"the state was not sent: {_first_line(error)}"
        return ""

    def _exchange(self, plan: GroupPlan, formed: _Formed | None) -> str:
        """Give and take the parts of a state that is divided; why not, if that fails."""
        job = self.sharded
        if formed is None or job is None:
            return ""
        before = groups.find_default()
        try:
            taken: Shards = {}
            if self._me in plan.members:
                taken = self._divide_again(job, plan, formed)
            self._fill(plan, formed, {} if self._gang.joining else job.parts(), taken)
        except Exception as error:  # whatever it is, the old division trains on
            return f"the state was not divided again: {_first_line(error)}"
        finally:
            groups.make_default(before)
        return ""

    def _divide_again(self, job: ShardedTraining, plan: GroupPlan, formed: _Formed) -> Shards:
        groups.make_default(formed.data)
        return job.divide_again(len(plan.members), formed.data)

    def _fill(self, plan: GroupPlan, formed: _Formed, given: Shards, taken: Shards) -> None:
        formed.store.set_timeout(dt.timedelta(seconds=self._patience_s))
        where = ShardPlan(formed.store, formed.shards, formed.old, plan.members, self._me)
        exchange(where, given, taken, self._gang.device)

    def _tell(self, plan: GroupPlan, formed: _Formed | None, *, good: bool) -> None:
        if formed is None or formed.transfer is None:
            return
        both = (*plan.sources, *plan.new)
        for source, new in _pairs(plan):
            if source == self._me:
                try:
                    send_verdict(formed.transfer, both.index(new), good=good)
                except RuntimeError as error:
                    # A new rank that died shows in the first step, if there is one.
                    log.warning("rank %d was not told: %s", new, _first_line(error))

    def _adopt(self, plan: GroupPlan, formed: _Formed, ended: float, step: int) -> None:
        rank, size = plan.members.index(self._me), len(plan.members)
        gone = self._gang.adopt(rank, size, formed.data, formed.control, plan.epoch)
        self._gang.nodes = plan.nodes
        gone += [group for group in (formed.transfer, formed.shards) if group is not None]
        formed.data = formed.control = formed.transfer = formed.shards = None
        self._members = plan.members
        groups.retire(gone)
        self._reports.say(Adopted(plan.epoch, step, time.monotonic() - ended))

    # ---- a new rank

    def join(self, job: ResizableTraining, model: torch.nn.Module) -> int:
        """Wait for the old ranks, take their state, and train on with them; the steps done so far.

        SystemExit if they train on without this rank.
        """
        self._model = model
        gc.collect()  # now, when nothing waits for it
        self._reports.say(Built(self._gang.joining))
        plan = self._await_form()
        with self._lock:
            self._plan = plan
        self._form(plan, WAIT_S)
        formed, why = self._formed, self._why
        message: dict[str, Any] = {}
        if formed is not None:
            try:
                with no_collection():
                    message = self._receive(plan, formed, job)
            except RuntimeError as error:
                why = f"the state did not come: {_first_line(error)}"
        if formed is None or not message:
            self._reports.send_last_word("resized", why)
            raise SystemExit(0)
        job.take_state(message["state"])
        rank, size = plan.members.index(self._me), len(plan.members)
        # A rank that takes another's place continues its random numbers, all others their own.
        place = (0, 1) if message["place"] == (rank, size) else (rank + 1, size + 1)
        rng_state.restore([message["random"]], *place, self._gang.device)
        with self._lock:
            self._plan, self._formed = None, None
        self._model = None
        steps = int(message["state"]["counts"]["steps"])
        ended = message["ended"]
        if groups.is_far(plan.store):  # its source may count from the start of another machine
            ended += message["clock"] - (time.time() - time.monotonic())
        self._adopt(plan, formed, min(ended, time.monotonic()), steps)
        return steps

    def _await_form(self) -> GroupPlan:
        while True:
            for message in self._reports.receive():
                if isinstance(message, GroupPlan) and message.epoch == self._gang.joining:
                    return message
                if isinstance(message, (Drop, Stop)):
                    self._reports.send_last_word("resized")
                    raise SystemExit(0)
            time.sleep(LOOK_S)

    def _receive(self, plan: GroupPlan, formed: _Formed, job: ResizableTraining) -> dict[str, Any]:
        """Receive this rank's state from its source; empty if the old ranks did not agree."""
        both = (*plan.sources, *plan.new)
        source = next(old for old, new in _pairs(plan) if new == self._me)
        at = both.index(source)
        own = {"state": job.collect_state()}
        message: dict[str, Any] = receive_state(formed.transfer, at, own, self._gang.device)
        if self.sharded is not None:
            self._patience_s = SEND_S + SEND_GB_S * message["state_gb"]
            self._fill(plan, formed, {}, formed.taken)
            self.sharded.settle_parts(good=True)
        return message if receive_verdict(formed.transfer, at) else {}


def _agree_on_ability(gang: RankGang) -> Ability:
    """Return what rank 0 finds out, at all ranks; one that joins is among ranks that can."""
    if gang.joining and gang.size > 1:
        return Ability()
    return gang.broadcast(find_ability(gang.device) if gang.rank == 0 else Ability())


def _pairs(plan: GroupPlan) -> list[tuple[int, int]]:
    """Return pairs of ranks: one sends its state to the other."""
    return [(plan.sources[at % len(plan.sources)], new) for at, new in enumerate(plan.new)]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [repr(error)])[0][:200]
