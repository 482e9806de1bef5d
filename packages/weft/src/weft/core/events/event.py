"""Facts: what happened. State is a fold of these, so their log is the database.

Every event happens at the time of the step that folds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, get_args

from weft.core.events.report import NO_REPORT, Report
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId, MemoryPlace, NodeId, Tier
from weft.core.plan.reasons import Blocker
from weft.core.spec.part_spec import PartSpec
from weft.core.stops import Rung
from weft.frozen import frozen


@frozen
class Submitted:
    """A job was submitted."""

    job: Job


@frozen
class Cancelled:
    """A job was cancelled; `reason` is why, where no person chose it."""

    job: JobId
    reason: str = ""


@frozen
class Suspended:
    """Someone suspended a job: it leaves its devices, and no policy sees it until `Resumed`.

    `by` is who, in words. `rung` is how it leaves them.
    """

    job: JobId
    by: str = "its owner"
    rung: Rung = Rung.RESTART


@frozen
class Resumed:
    """A suspended job may go on."""

    job: JobId


@frozen
class PriorityChanged:
    """A job that has not ended is of another priority; what it holds it keeps for now."""

    job: JobId
    priority: float
    tier: Tier = Tier.GUARANTEED


@frozen
class Started:
    """An attempt runs."""

    job: JobId
    attempt: int


@frozen
class StartFailed:
    """An attempt could not be started; the job waits again. `lost` is as for `Failed`."""

    job: JobId
    attempt: int
    reason: str = ""
    lost: bool = False


@frozen
class Stopped:
    """An attempt has left its devices, as asked."""

    job: JobId
    attempt: int


@frozen
class Finished:
    """A job is done."""

    job: JobId
    attempt: int


@frozen
class Failed:
    """An attempt died. With `retry` the job waits again, else it is over.

    `lost` says that it was not the job's own doing, so that it does not count as one of its tries.
    `code` is the exit code of its process, negative for a signal, None if that is not known.
    `final` says that another try would end alike, `agent_died` that it was lost with its agent.
    `out_of_memory` says that it wanted more memory of a device than there was for it, `gpu_fault`
    that a fault of one ended it, which may have been its own.
    """

    job: JobId
    attempt: int
    reason: str = ""
    retry: bool = False
    lost: bool = False
    code: int | None = None
    final: bool = False
    agent_died: bool = False
    out_of_memory: bool = False
    gpu_fault: bool = False


@frozen
class Reported:
    """A running job reported its measurements."""

    job: JobId
    attempt: int
    report: Report = NO_REPORT


@frozen
class Measured:
    """Values that a program measured of itself, such as a validation loss, oldest first.

    Number i is of the metric `names[i]`, at its step `steps[i]`; a value is None where it was no
    finite number. `noted_at` is when its agent wrote them down, later for each such event of an
    attempt.
    """

    job: JobId
    attempt: int
    noted_at: float
    names: tuple[str, ...] = ()
    steps: tuple[float, ...] = ()
    values: tuple[float | None, ...] = ()


@frozen
class Observed:
    """An observation from outside of what a running attempt does to a device.

    `peak_gb` is the most memory that it held of one, told once a job that goes on as it did is not
    likely to need more, and when that grows. `pace` is the part of its speed alone that it keeps
    `beside` these jobs. None was not seen. For `broken_s` seconds in all it was slower than it was
    promised.
    """

    job: JobId
    attempt: int
    peak_gb: float | None = None
    pace: float | None = None
    beside: tuple[JobId, ...] = ()
    broken_s: float = 0.0


@frozen
class Saved:
    """A running job has a new checkpoint to restart from."""

    job: JobId
    attempt: int
    step: int = 0


@frozen
class Resizable:
    """A running attempt has come so far that its devices can change while it trains.

    `state_gb` is what a new process of it has to be sent: weights, optimizer and the like.
    """

    job: JobId
    attempt: int
    state_gb: float = 0.0


@frozen
class Resized:
    """An attempt trains on the devices of its change `epoch`, and has left all others.

    `pause_s` is how long no step was under way, `prepare_s` how long new processes were made ready
    while the others trained.
    """

    job: JobId
    attempt: int
    epoch: int
    pause_s: float = 0.0
    prepare_s: float = 0.0


@frozen
class ResizeFailed:
    """The change `epoch` was not made: the attempt trains on where it was, and has left the rest.

    It is then stopped and started on its new devices from a checkpoint.
    """

    job: JobId
    attempt: int
    epoch: int
    reason: str = ""


@frozen
class StartedAhead:
    """A job that waits is started before its turn, on devices that another one still has.

    It sleeps from its first step on, and goes on when it is given these devices. Until then it
    holds memory and no time.
    """

    job: JobId
    attempt: int
    on: Allocation


@frozen
class Slept:
    """An attempt sleeps: it uses no device any more, and goes on where it was when it is woken.

    That took `took_s`. A suspended one holds `host_gb` of the host's memory for its devices.
    """

    job: JobId
    attempt: int
    rung: Rung
    took_s: float = 0.0
    host_gb: float = 0.0


@frozen
class SleepFailed:
    """An attempt could not be put to sleep as asked, and runs. It is then stopped for good."""

    job: JobId
    attempt: int
    reason: str = ""


@frozen
class Awoke:
    """An attempt that slept runs again, `took_s` after it was asked to."""

    job: JobId
    attempt: int
    took_s: float = 0.0


@frozen
class Noticed:
    """A running job says something that a person should read; `level` as in logging.

    With `dropped` it is not the job's word: something that it said could not be used.
    """

    job: JobId
    attempt: int
    level: str
    text: str
    dropped: bool = False


@frozen
class DeadlineMissed:
    """The deadline of a job has come, and the job has not ended."""

    job: JobId


@frozen
class Foretold:
    """People were shown when a waiting job would start, in seconds from this event.

    Four of five such ranges, `low_s` to `high_s`, should hold; `mid_s` is the middle.
    """

    job: JobId
    low_s: float
    mid_s: float
    high_s: float


@frozen
class NodeUp:
    """A machine came, or came back; `by` is who put it back into use."""

    node: Node
    by: str = ""


@frozen
class NodeDown:
    """A machine is gone, with whatever ran on it.

    With `drained` it is there but given back: its jobs are asked to leave, and it stays out of
    use until a NodeUp. `by` is who did that, and `why` in that person's words.
    """

    node: NodeId
    drained: bool = False
    by: str = ""
    why: str = ""


@frozen
class LoanRecalled:
    """An owner wants `count` more of its lent machines back; each that leaves is a NodeDown."""

    count: int


@frozen
class Woken:
    """The time that was asked for has come."""


@frozen
class Refitted:
    """The predictor's model was fitted again, beside the decisions, to the first `ends` ended jobs.

    `model` is all of it, in plain values: a reader of the log takes it from here and fits nothing.
    """

    ends: int
    model: Any = None


@frozen
class PolicyTerms:
    """Properties of a policy that a reader of the log needs to judge its decisions.

    `every` is the length of its rounds, None without any. `idles` is why it may leave a GPU idle
    beside a job that could use it, empty where it never does. With `sizes` it chooses how many
    GPUs a job gets.
    """

    every: float | None = None
    idles: str = ""
    sizes: bool = False


@frozen
class PolicyChanged:
    """From here on `policy` decides, and starts without memory.

    `policy` is its name, parameters and wrappers; logs of old versions hold its short form. Also
    said when a service begins or begins again: a log then holds all that its decisions followed
    from. `instead_of` is a policy that failed too often, and `reason` how: no person chose the one
    that decides now. `terms` are the policy's own, without the rules around it; None in old logs.
    `by` is who changed it or the rules around it, and `reason` then why.
    """

    policy: PartSpec
    instead_of: PartSpec | None = None
    reason: str = ""
    terms: PolicyTerms | None = None
    by: str = ""


@frozen
class Decided:
    """The policy decided: what changes, which jobs are rejected, when it wants to be woken.

    `by` is what decided where the policy could not: the safe order that stands in for it.
    `blockers` are `reasons` in a word each. `live` names those of the changes that jobs make while
    they train, without a stop. `sleeps` names those that go to sleep where they are, and how.
    `promised` names jobs that were promised their deadline. `facts` are what reasons state: the
    numbers and names of each, by the words of `weft.core.plan.reasons`. `memory_order` are
    the numbers of the plan that are not as before.
    """

    number: int
    changes: Mapping[JobId, Allocation | None] = field(default_factory=dict)
    rejected: Mapping[JobId, str] = field(default_factory=dict)
    wake_at: float | None = None
    reasons: Mapping[JobId, str] = field(default_factory=dict)
    by: PartSpec | None = None
    blockers: Mapping[JobId, Blocker] = field(default_factory=dict)
    live: tuple[JobId, ...] = ()
    sleeps: Mapping[JobId, Rung] = field(default_factory=dict)
    promised: tuple[JobId, ...] = ()
    facts: Mapping[JobId, Mapping[str, Any]] = field(default_factory=dict)
    memory_order: Mapping[JobId, MemoryPlace] = field(default_factory=dict)


OfJob = (
    Cancelled
    | Suspended
    | Resumed
    | PriorityChanged
    | Started
    | StartFailed
    | Stopped
    | Finished
    | Failed
    | Reported
    | Measured
    | Observed
    | Saved
    | Resizable
    | Resized
    | ResizeFailed
    | StartedAhead
    | Slept
    | SleepFailed
    | Awoke
    | Noticed
    | DeadlineMissed
    | Foretold
)
Event = (
    Submitted
    | OfJob
    | NodeUp
    | NodeDown
    | LoanRecalled
    | Woken
    | Refitted
    | PolicyChanged
    | Decided
)
EVENTS: tuple[type[Event], ...] = get_args(Event)


def names(event: Event, job: JobId) -> bool:
    """True if an event is about a job."""
    if isinstance(event, Submitted):
        return event.job.id == job
    if isinstance(event, Decided):
        return job in event.changes or job in event.rejected or job in event.reasons
    return isinstance(event, OfJob) and event.job == job
