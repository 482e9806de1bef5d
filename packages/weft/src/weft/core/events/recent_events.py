"""The last events, so that an error can tell what happened to a job before it."""

from __future__ import annotations

from collections import deque

from weft.core.errors import StateError
from weft.core.events.event import Decided, Event, OfJob, Submitted, names
from weft.core.model.job import JobId
from weft.plural import say_gpus

REMEMBERED = 2_000  # events of all jobs
TOLD = 12


class RecentEvents:
    """The last events folded, of all jobs together; the state appends to `events`, oldest first."""

    __slots__ = ("events",)

    def __init__(self, most: int = REMEMBERED) -> None:
        self.events: deque[tuple[float, Event]] = deque(maxlen=most)

    def __reduce__(self) -> tuple[type[RecentEvents], tuple[int]]:
        # The log has it all; a snapshot need not.
        return RecentEvents, (self.events.maxlen or REMEMBERED,)

    def lines_of_job(self, job: JobId) -> list[str]:
        """The last events of a job, oldest first, a line each."""
        lines = [_line(at, event, job) for at, event in self.events if names(event, job)]
        return lines[-TOLD:]

    def error(self, now: float, event: Event, why: BaseException) -> StateError:
        """The error to raise for an event that cannot follow from those before it."""
        what = f"{type(event).__name__} at {now:.3f} cannot be: {_why(why)}"
        job = _job_of(event, why)
        if job is None:
            return StateError(what)
        events = "\n".join(f"  {line}" for line in self.lines_of_job(job))
        return StateError(f"{what}\nhistory of job {job!r}:\n{events or '  no events are known'}")


def _why(error: BaseException) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error) or repr(error)


def _job_of(event: Event, why: BaseException) -> JobId | None:
    """The job whose history is shown; for a decision about many, the job that was not found."""
    if isinstance(event, OfJob):
        return event.job
    if isinstance(event, Submitted):
        return event.job.id
    if isinstance(event, Decided) and isinstance(why, KeyError) and why.args:
        return JobId(str(why.args[0]))
    return None


def _line(at: float, event: Event, job: JobId) -> str:
    text = type(event).__name__
    if isinstance(event, Submitted):
        text += f" asking for {say_gpus(event.job.demand.gpus)}"
    elif isinstance(event, Decided):
        text += f" {event.number}: {_decided(event, job)}"
    elif isinstance(event, OfJob):
        text += _rest(event)
    return f"{at:.3f}  {text}"


def _decided(event: Decided, job: JobId) -> str:
    if job in event.rejected:
        return f"rejected, {event.rejected[job]}"
    if job not in event.changes:
        return event.reasons.get(job, "")
    to = event.changes[job]
    if to is None:
        return "holds nothing"
    return "holds " + " ".join(f"{part.node}:{','.join(map(str, part.gpus))}" for part in to.slices)


def _rest(event: OfJob) -> str:
    text = str(event)
    return text[text.find("(") :]
