"""Messages of running jobs, checked where they enter, and news that the log could not take.

A message that cannot be right is left out as far as it is wrong, counted, and said once in the
notes of the attempt.

The scheduler has taken in events that the log does not have. So every caller is
refused, and the scheduler is read from the log again; what engines told is kept and tried later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from weft.core.codec.event_lines import readable_line
from weft.core.errors import (
    EngineError,
    MaybeWritten,
    StoreError,
    Superseded,
    UnreadableEvent,
    WeftError,
)
from weft.core.events.event import Event, Failed, Measured, Noticed, Reported, Saved, StartFailed
from weft.core.events.report import Report
from weft.core.model.job import JobId
from weft.core.protocols import Store
from weft.core.scheduler import Scheduler
from weft.runtime.deciding.live_policy import live_policy
from weft.runtime.records.metrics import sound_points
from weft.runtime.recovery.recover import Recovered, recover
from weft.wire.ending import end_if_asked

log = logging.getLogger(__name__)

LEVELS = frozenset(("debug", "info", "warning", "error", "critical", "idle"))
LONGEST_TEXT = 2_000
MOST_STEP = 2**53
WARNED_KEPT = 10_000  # attempts
Said = Reported | Measured | Saved | Noticed
SAID = (Reported, Measured, Saved, Noticed)


class Messages:
    """Validates what engines report of jobs; `dropped` counts invalid messages."""

    def __init__(self) -> None:
        self.dropped = 0
        self._warned: dict[tuple[JobId, int], None] = {}

    def validate(self, events: Iterable[Event]) -> list[Event]:
        """The events as far as they can be right, and a notice of the first that is not."""
        return [kept for event in events for kept in self._validated(event)]

    def leave_out(self, event: Said, why: str) -> list[Event]:
        """Count a message that is not used at all; what is to be said of it."""
        self.dropped += 1
        attempt = (event.job, event.attempt)
        if attempt in self._warned:
            return []
        log.warning("job=%s attempt=%d message left out: %s", *attempt, why)
        self._warned[attempt] = None
        while len(self._warned) > WARNED_KEPT:
            del self._warned[next(iter(self._warned))]
        text = f"part of its message is invalid and was ignored: {why}"
        return [Noticed(*attempt, "warning", text[:LONGEST_TEXT], dropped=True)]

    def _validated(self, event: Event) -> Iterator[Event]:
        match event:
            case Reported(job, attempt, raw):
                report, wrong = Report.validate(raw.values())
                yield Reported(job, attempt, report) if wrong else event
                if wrong:
                    yield from self.leave_out(event, "; ".join(wrong))
            case Measured():
                measured, why = sound_points(event)
                yield measured
                if why:
                    yield from self.leave_out(event, why)
            case Saved(_, _, step):
                sound = type(step) is int and 0 <= step <= MOST_STEP
                yield from (event,) if sound else self.leave_out(event, f"step is {_short(step)}")
            case Noticed(dropped=True):
                yield from self.leave_out(event, event.text)
            case Noticed(_, _, level, text):
                if level in LEVELS and isinstance(text, str):
                    yield replace(event, text=_cut(text))
                else:
                    yield from self.leave_out(event, f"level is {_short(level)}")
            case Failed(_, _, reason) | StartFailed(_, _, reason):
                yield replace(event, reason=_cut(str(reason)))
            case _:
                yield event


def find_blamed(noted: Sequence[tuple[float, Event]], error: BaseException) -> Said | None:
    """The message that broke a turn, or that the log refuses; None if it was something else.

    An event is noted, then taken in: if that failed it was the last one.
    """
    if not isinstance(error, Exception) or isinstance(error, Superseded) or not noted:
        return None
    event = noted[-1][1]
    if isinstance(error, UnreadableEvent):
        event = next((other for at, other in noted if not _readable(at, other)), event)
    return event if isinstance(event, SAID) else None


def without(asked: Asked, blamed: Said, error: BaseException) -> Asked:
    """The request without all that the blamed job said; and a notice that this was left out."""
    log.error("job=%s sent a message that failed the turn: %r", blamed.job, blamed, exc_info=error)
    rest = [
        request
        for request in asked
        if not isinstance(request[0], SAID) or request[0].job != blamed.job
    ]
    notice = Noticed(blamed.job, blamed.attempt, "warning", repr(error), dropped=True)
    return Asked([*rest, (notice, None)])


def _readable(at: float, event: Event) -> bool:
    try:
        readable_line(at, event)
    except UnreadableEvent:
        return False
    return True


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _short(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 99:
        return "too long to show"
    return repr(value)[:60]


# Messages and requests that a driver has not handled yet.

# Each event, with the callers that wait for it to be on disk; none waits for events of engines.
Asked = deque[tuple[Event, asyncio.Future[None] | None]]


def answer_all(asked: Asked) -> None:
    """Answer the callers that wait, as it is on disk, and forget it."""
    for _, answer in asked:
        if answer is not None and not answer.done():
            answer.set_result(None)
    asked.clear()


def fail_all(asked: Asked, error: BaseException) -> None:
    """Notify the callers that wait that it is not done."""
    for _, answer in asked:
        if answer is not None and not answer.done():
            answer.set_exception(error)


AGAIN_S = 1.0


class Unwritten(EngineError):  # noqa: N818 - as the others
    """The log could not be written; nothing of what was asked is done, unless `perhaps`."""

    perhaps = False

    @classmethod
    def because(cls, error: WeftError) -> Unwritten:
        """The refusal of a request while the log cannot be written."""
        made = cls(
            f"the scheduler cannot write its log, so it accepts no requests: {error.what}",
            hint=error.hint or "free space in the service's --state folder, then ask again",
        )
        made.perhaps = isinstance(error, MaybeWritten)
        return made


async def append(store: Store, noted: Sequence[tuple[float, Event]]) -> int:
    """Keep the events, all or none; the number of the last. Raises Unwritten."""
    try:
        return await asyncio.to_thread(store.append, noted)
    except Superseded:
        raise
    except UnreadableEvent as error:
        if find_blamed(noted, error) is not None:
            raise
        raise Unwritten.because(error) from error
    except WeftError as error:
        log.error("%s", error.what)  # noqa: TRY400 - a full disk is no bug of ours
        raise Unwritten.because(error) from error


async def read_again(
    store: Store, make: Callable[[], Scheduler], closing: Callable[[], bool]
) -> Recovered:
    """All that the log says, with the policy that decided last; it starts without memory.

    Reading tidies up beside the log, so on a full disk it is tried until that is over.
    """
    while True:
        end_if_asked()
        try:
            known = await asyncio.to_thread(recover, store, make)
            break
        except StoreError as error:
            if closing() or isinstance(error, Superseded):
                raise
            log.error("the log is read again later: %s", error.what)  # noqa: TRY400
            await asyncio.sleep(AGAIN_S)
    known.scheduler.use(live_policy(known.policy))
    return known
