"""A process that only decides: `python -m weft.runtime.deciding.decide_worker MEMORY_GB`.

It holds a copy of the scheduler's state and keeps it up to date by the same events. A policy that
loops, ends its process or eats all memory harms nothing else: the service ends it, and goes on.
"""

from __future__ import annotations

import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO

from weft.core.events.event import Decided, Event, PolicyChanged
from weft.core.model.cluster import Cluster
from weft.core.scheduler import Scheduler
from weft.runtime.aside.worker import begin_worker
from weft.runtime.deciding.frames import (
    Begin,
    Decide,
    Failure,
    PlanReply,
    frame,
    pack,
    read_frame,
    unpack,
)
from weft.runtime.deciding.live_policy import live_policy, propose


class Deciding:
    """The copy of a scheduler."""

    def __init__(self, begin: Begin) -> None:
        self._scheduler = Scheduler(live_policy(begin.policy), Cluster(()))
        self._scheduler.take_over(unpack(begin.state))
        self._scheduler.memory = unpack(begin.memory)
        self._memory: object = None

    def answer(self, asked: Decide) -> PlanReply | Failure:
        """Take in what happened and decide."""
        began = time.process_time()
        try:
            for at, event in asked.told:
                self._apply_event(at, event)
            plan = propose(self._scheduler, asked.now)
            self._memory = plan.memory
            memory = pack(plan.memory)
            return PlanReply(replace(plan, memory=None), memory, time.process_time() - began)
        except BaseException as error:  # the policy's, whatever it is: told, not suffered
            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())

    def _apply_event(self, at: float, event: Event) -> None:
        self._scheduler.apply_event(at, event)
        self._scheduler.state.free.commit()
        if isinstance(event, PolicyChanged):
            self._scheduler.use(live_policy(event.policy))
        elif isinstance(event, Decided) and not event.by:
            self._scheduler.memory = self._memory


def serve(source: BinaryIO, out: BinaryIO) -> None:
    """Answer until the other side has gone."""
    deciding: Deciding | None = None
    with suppress(EOFError):
        while True:
            message = read_frame(source)
            if isinstance(message, Begin):
                deciding = Deciding(message)
                out.write(frame(None))
            elif deciding is not None:
                out.write(frame(deciding.answer(message)))
            out.flush()


def main() -> None:
    """Serve on standard input and output; what a policy prints goes to standard error.

    Says None first, when everything is imported.
    """
    out = begin_worker(float(sys.argv[1]))
    out.write(frame(None))
    out.flush()
    serve(sys.stdin.buffer, out)


if __name__ == "__main__":
    main()
