"""The conversation of a rank with its job's agent, over the agent's Unix stream socket.

    rank  → agent   hello, report, saved, notice, canresize, built, adopted, dropped, leaving
    watcher → agent counted, metrics
    agent → rank    welcome, stop, adjust, turns, shift, form, drop

A rank speaks first: `hello`, answered by `welcome`. After a lost connection it connects again, says
`hello` and repeats its last `saved` and last `report`, so an agent that was restarted knows where
the job stands; agents must take repeats calmly. Messages of an attempt that is not the job's
present one are to be dropped. A resize is a `stop` and another start, unless the ranks said
`canresize`: then new ranks are started beside them and say `built`, all are asked to `form` the
next epoch, and the old ranks alone agree on the step at which they switch (`adopted`), or that they
do not (`dropped`). Epochs count the changes of an attempt. Ranks are known to the agent by the
number they were started with, whatever their rank is now. A watcher (`weft.node.watcher`) counts
the steps of a program that knows nothing of us: it says no `hello`, and nothing is ever said to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from .lines import Splitter, Vocabulary


@dataclass(frozen=True, slots=True)
class Hello:
    """Rank to agent, first: which rank it is. `pid` is the rank's own process."""

    job: str
    attempt: int
    rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class Report:
    """Rank to agent: measurements since the last one, medians where a window is meant.

    step_s      seconds of one optimiser step, data wait and synchronisation included
    grad_s      seconds to compute one micro-batch's gradient (forward and backward)
    sync_s      seconds of a step that the gradients' all-reduce was waited for
    data_s      seconds of a step that the loader was waited for
    token_s     seconds of a step that stage tokens were waited for
    batch       samples of one step over all ranks: per_gpu · accumulate · ranks
    per_gpu     samples of one micro-batch on one rank
    accumulate  micro-batches of a step, from 1
    lr_factor   what the learning rate is scaled by for this batch
    noise       gradient noise scale, in samples: variance of one sample's gradient / |gradient|²
    grad_var    variance of the gradient at the initial batch size
    grad_sqr    squared norm of the true gradient
    gain        initial-size steps that a step of this batch is worth
    samples     samples seen since the job began, over all ranks and attempts
    steps       optimiser steps since the job began
    epoch       the epoch that is running, from 0
    progress    0..1 of the epochs, if the job said how many
    work        samples of all epochs together, if the job said how many
    loss        mean loss of the last steps
    mem_gb      peak device memory of this rank (resident memory without a GPU)
    user.NAME   what the script gave to `job.report(NAME=…)`
    """

    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Counted:
    """Watcher to agent, a few times per second at most: how far the training in a process has come.

    at         Unix time at which the last step was done
    steps      that many were done since the process began
    unit       what a step is: step, graph, batch or bar (`weft.core.knowledge.measured`)
    total      steps of the whole training, 0 where nothing tells
    data_s     seconds waited for data since the process began; less than 0 where nothing tells
    held_gb    memory that the framework has of its devices now, where it has most; 0 for none
    peak_gb    the most it ever had
    own_s      seconds from the end of a step to its backward pass, of `own_steps` steps
    """

    job: str
    attempt: int
    rank: int
    pid: int
    at: float
    steps: float
    unit: str = "step"
    total: float = 0.0
    data_s: float = -1.0
    held_gb: float = 0.0
    peak_gb: float = 0.0
    own_s: float = 0.0
    own_steps: float = 0.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """Rank or watcher to agent: values that the program measured of itself, oldest first.

    names     of the metric of each value
    steps     of the program's own count, less than 0 where it has none
    values    None where it was no finite number
    """

    job: str
    attempt: int
    rank: int
    names: tuple[str, ...]
    steps: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """Rank 0 to agent: a checkpoint is on disk under its final name."""

    step: int
    epoch: int
    path: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Rank to agent: a notice for people. `level` is info, warning or error.

    For instance a corrupted checkpoint that was skipped, or a disk that is full.
    """

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class CanResize:
    """Rank 0 to agent: ranks may come and go as we train; a new one is sent `state_gb`.

    Not `several`: a single one may only move to another device.
    """

    state_gb: float
    several: bool = True


@dataclass(frozen=True, slots=True)
class Built:
    """New rank to agent: it waits for the others of `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """Rank to agent: it trains in `epoch` now, from `step` on, after no step for `pause_s`."""

    epoch: int
    step: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """Old rank to agent: `epoch` will not be; it trains on as before."""

    epoch: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Leaving:
    """Rank to agent, last: `reason` is done, stopped, resized or error; `text` says more.

    done     the training is complete; the job must not be started again
    stopped  it was asked to leave and its checkpoint is written; exit code 0
    resized  the others train on without it; exit code 0
    error    it could not go on, or another attempt owns the checkpoints; exit code not 0
    """

    reason: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Agent to rank: the hello was understood."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Agent to rank: checkpoint and leave with exit code 0 within `grace_s` seconds.

    To one rank is enough: the ranks agree among themselves on the step they stop at.
    """

    grace_s: float


@dataclass(frozen=True, slots=True)
class Adjust:
    """Agent to rank 0: train on with this batch. `per_gpu` 0 gives the choice back to the job.

    Sent right after `welcome` if the scheduler chose the batch before the start.
    """

    per_gpu: int
    accumulate: int = 1


@dataclass(frozen=True, slots=True)
class Turns:
    """Agent to rank 0: take turns with others on your devices like this from now on.

    `coordinator` is the socket of the coordinator of stage tokens, empty for no turns at all. The
    rest is what the rank joins it with. All ranks of a gang change over at the same step.
    """

    coordinator: str
    tier: str = "guaranteed"
    weight: float = 1.0
    phase: float = 0.0


@dataclass(frozen=True, slots=True)
class Shift:
    """Agent to rank 0: begin iterations every `period_s` seconds, `shift_s` after a multiple of it.

    By Unix time, so that jobs that share a network link send one after the other. A period of 0:
    whenever they may. Sent right after `welcome` if the scheduler chose so before the start. All
    ranks of a gang change over at the same step.
    """

    period_s: float
    shift_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Agent to old and new ranks: form the groups of `epoch`, and switch when all old ones have.

    `members` are the numbers of its ranks in order; the `new` ones among them are sent the state by
    the `sources`, in turn. They meet in the file `store`, or where the rank with the number `host`
    listens if that is a `tcp://` address, as on several `nodes`.
    """

    wire_name: ClassVar[str] = "form"

    epoch: int
    members: tuple[int, ...]
    new: tuple[int, ...]
    sources: tuple[int, ...]
    store: str
    host: int = -1
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Drop:
    """Agent to old ranks: `epoch` is not to be, if they have not switched yet."""

    epoch: int
    reason: str = ""


FromRank = (
    Hello
    | Report
    | Metrics
    | Saved
    | Notice
    | CanResize
    | Built
    | Adopted
    | Dropped
    | Leaving
    | Counted
)
FromAgent = Welcome | Stop | Adjust | Turns | Shift | GroupPlan | Drop

FROM_RANK: Vocabulary[FromRank] = Vocabulary(
    *(Hello, Report, Metrics, Saved, Notice, CanResize, Built, Adopted, Dropped, Leaving, Counted)
)
FROM_AGENT: Vocabulary[FromAgent] = Vocabulary(Welcome, Stop, Adjust, Turns, Shift, GroupPlan, Drop)


def from_rank() -> Splitter[FromRank]:
    """Return an agent's reader of a rank's stream."""
    return Splitter(FROM_RANK)


def from_agent() -> Splitter[FromAgent]:
    """Return a rank's reader of its agent's stream."""
    return Splitter(FROM_AGENT)
