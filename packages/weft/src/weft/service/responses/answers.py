"""Answers of the API, as plain dataclasses: commands read them without a web framework."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from weft.core.spec.part_spec import PartSpec
from weft.frozen import frozen_by_name
from weft.service.responses.job_row import (
    GpuHealth,
    JobName,
    JobRow,
    Measurements,
    MetricValue,
    NodeWord,
    RoleWord,
    StateWord,
)


@frozen_by_name
class Problem:
    """The error and what fixes it."""

    error: str
    hint: str = ""
    field: str = ""


@frozen_by_name
class Health:
    """The state of the service in short."""

    status: Literal["ok", "trouble"]
    policy: str
    engine: str
    jobs: int
    trouble: str = ""
    isolation: Literal["users", "none", ""] = ""


@frozen_by_name
class Me:
    """The caller; `everywhere` sees all tenants' jobs. Without `signed_in`, no token is needed."""

    name: str
    role: RoleWord
    tenant: str
    everywhere: bool
    signed_in: bool


@frozen_by_name
class Liveness:
    """The state of the service as far as a restart would help."""

    alive: bool


@frozen_by_name
class HealthCheck:
    """One part of the service, and what is wrong with it; `said` is the old name of that."""

    part: str
    ok: bool
    said: str
    message: str = ""


@frozen_by_name
class Readiness:
    """The state of every part of the service."""

    ready: bool
    checks: list[HealthCheck]


@frozen_by_name
class Made:
    """The id of a job that is on disk; for a sweep also the ids of its `jobs`.

    `warning`: it will probably fail, as similar jobs did; `by_client`: its user's client starts it.
    """

    id: str
    jobs: list[str] = field(default_factory=list)
    warning: str = ""
    by_client: bool = False


@frozen_by_name
class MadeAll:
    """The ids of the jobs of a batch that are on disk, in the order of the request."""

    jobs: list[str]


@frozen_by_name
class Part:
    """Devices of one node."""

    node: str
    gpus: list[int]
    kind: str
    share: float
    cpus: float = 0.0


@frozen_by_name
class Notice:
    """A message for people."""

    at: float
    level: str
    text: str


@frozen_by_name
class JobAnswer(JobRow):
    """One job; times in seconds since the epoch.

    `silent_s` is how long a running job that used to report has not reported, if that is unusual:
    it may hang, or its machine may be out of reach. `pids`, by rank, are given for a single job
    only. `app` is the sweep or application that it belongs to, and `parameters` its values there.
    `after` names the jobs that it waits for, by `ok`, `any` and `not_ok`. `suspended_by` is the
    person who suspended it, from then until it is resumed; it may still have to leave its devices.
    `arguments` are the first values of its sweep or command, for a single job only.
    `plans` are the execution plans that it can run, `plan` the current one, `device` the name for
    devices in its cluster. `metrics` are what its program measured of itself, by name.
    """

    reason: str
    allocation: list[Part] | None
    failures: int
    model: str
    preemptible: bool
    command: list[str]
    saved_step: int | None
    silent_s: float | None = None
    notices: list[Notice]
    nodes: int | None = None
    pty: bool = False
    pids: list[int] = field(default_factory=list)
    after: dict[str, list[str]] = field(default_factory=dict)
    deadline: float | None = None
    deadline_missed: bool = False
    deadline_or: str = ""
    cpus: float | None = None
    mem_gb: float | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    suspended_by: str | None = None
    measured: Measurements | None = None
    metrics: dict[str, MetricValue] = field(default_factory=dict)
    plans: list[str] = field(default_factory=list)
    plan: str = ""
    device: str = "GPU"


@frozen_by_name
class JobList:
    """A page of jobs in order of submission; `next` is what `after` continues from."""

    jobs: list[JobAnswer]
    next: str | None


@frozen_by_name
class Events:
    """Events of the log."""

    events: list[dict[str, Any]]


@frozen_by_name
class Start:
    """Seconds from now until a start, from simulations of the present state.

    `p90` is null if fewer than nine in ten simulations reached a start. With 0 `simulations`, it is
    an estimate from the jobs ahead, or `unknown` says why there is none.
    """

    p10: float | None
    p50: float | None
    p90: float | None
    simulations: int
    unknown: str = ""


@frozen_by_name
class Ahead:
    """A job in front. Names of other tenants' jobs are not shown."""

    id: str
    name: str
    tenant: str
    state: str
    gpus: float


@frozen_by_name
class Change:
    """A change that would start a job now, tried on a copy of the present state."""

    text: str
    fields: dict[str, Any]


@frozen_by_name
class Explanation:
    """The reason why a job waits, or holds what it holds; `blocked_by` names the cause in one word.

    `decided_by` is the policy or layer that keeps it waiting, `left_out` lists answers that there
    was no time for.
    """

    id: str
    state: StateWord
    reason: str
    blocked_by: str = ""
    decided_by: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    ahead: list[Ahead] = field(default_factory=list)
    cheapest_change: Change | None = None
    start: Start | None = None
    holds: list[Part] | None = None
    left_out: list[str] = field(default_factory=list)
    device: str = "GPU"


@frozen_by_name
class NodeAnswer:
    """One machine; `held_gpus` are in use by any job, and `drained_gpus` may not be used.

    `links` names how its GPUs are connected; empty if unknown. `reason` is why no jobs are placed
    on it, as written by the person who drained it. `health` is what the GPU driver reports.
    """

    id: str
    state: NodeWord
    kind: str
    gpus: int
    held: int
    cpus: float
    mem_gb: float
    rack: str
    held_gpus: list[int] = field(default_factory=list)
    drained_gpus: list[int] = field(default_factory=list)
    links: str = ""
    reason: str = ""
    health: list[GpuHealth] = field(default_factory=list)


@frozen_by_name
class Nodes:
    """Every machine."""

    nodes: list[NodeAnswer]


@frozen_by_name
class NodeCheck:
    """GPUs of a machine that were opened just now; those that could not be tried are left out."""

    id: str
    gpus: list[GpuHealth]


@frozen_by_name
class Done:
    """The result of a command; `changed` is false if nothing had to change."""

    done: str
    changed: bool = True


@frozen_by_name
class PolicyAnswer:
    """The current policy: as people write it, and as fields; `trouble` is what is wrong with it."""

    policy: str
    spec: PartSpec
    trouble: str = ""


@frozen_by_name
class Counts:
    """Devices of one kind."""

    gpus: int
    held: float


@frozen_by_name
class ClusterAnswer:
    """The cluster as a whole; `held` counts devices, `goodput` is useful samples per second."""

    now: float
    policy: str
    engine: str
    trouble: str
    nodes: int
    gpus: int
    held: float
    kinds: dict[str, Counts]
    jobs: dict[str, int]
    waiting: int
    running: int
    goodput: float
    decisions: int
    seq: int
    warnings: list[str]


@frozen_by_name
class Outlook:
    """Start and end of a job with the current settings, and `then`, with the change."""

    id: str
    name: str
    start: Start | None
    start_then: Start | None
    end: Start | None
    end_then: Start | None


@frozen_by_name
class NeverStarts:
    """The number of jobs that never start for this reason; `jobs` are the first of them."""

    count: int
    because: str
    jobs: list[str]


@frozen_by_name
class Comparison:
    """Jobs simulated with the current settings and with a change.

    For the metrics see `docs/reference/result.md`. `outlook` lists the caller's jobs if the
    simulation starts from now; `never` lists the jobs that a side never starts. `complete` unless
    there was too little CPU time for all of it.
    """

    policies: dict[str, dict[str, float | None]]
    jobs: int
    hours: float
    note: str
    outlook: list[Outlook] = field(default_factory=list)
    never: dict[str, list[NeverStarts]] = field(default_factory=dict)
    complete: bool = True


@frozen_by_name
class Used:
    """The usage of one job, in GPU-seconds by kind of GPU, and what of it was wasted.

    All of a failed job is; of others what was held and not used, and work that a restart lost.
    """

    id: str
    name: str
    tenant: str
    user: str
    state: str
    submitted: float
    started: float | None
    ended: float | None
    restarts: int
    gpu_seconds: float
    kinds: dict[str, float] = field(default_factory=dict)
    failed_gpu_seconds: float = 0.0
    idle_gpu_seconds: float = 0.0
    restarted_gpu_seconds: float = 0.0


@frozen_by_name
class Tenant:
    """The usage of one tenant, and how many jobs it submitted.

    `entitled_gpu_seconds` is its part of the cluster by `weight`, but no more than its jobs asked
    for. `received` is the GPU time used divided by that; null if it was entitled to none.
    """

    tenant: str
    jobs: int
    gpu_seconds: float
    weight: float = 1.0
    entitled_gpu_seconds: float = 0.0
    received: float | None = None


@frozen_by_name
class TenantShare:
    """GPUs of one tenant on average in each window: in use, and what it was entitled to."""

    tenant: str
    weight: float
    used_gpus: list[float]
    entitled_gpus: list[float]


@frozen_by_name
class SharesOverTime:
    """GPU time of tenants compared with their entitlement, in windows of `window_s` seconds.

    `at` is when each window begins; the last may still be open at `now`.
    """

    now: float
    window_s: float
    at: list[float]
    tenants: list[TenantShare]


@frozen_by_name
class Accounts:
    """GPU time by tenant and by job, up to `now`; `next` is what `after` continues from.

    `jain` is Jain's index of the tenants' parts of their entitlement; null if only one is visible.
    """

    now: float
    tenants: list[Tenant]
    jobs: list[Used]
    jain: float | None = None
    next: str | None = None


@frozen_by_name
class BatchJobToSubmit:
    """A batch job that is offered to its user's client; `secret` names it in the report."""

    secret: str
    script: str


@frozen_by_name
class FoldersToMake:
    """Folders to make, closed to others, before the batch job of the same `secret` is offered."""

    secret: str
    folders: list[str]


@frozen_by_name
class BatchJobs:
    """Work for a client: what to make, submit and end; and how many jobs are `left`."""

    make: list[FoldersToMake] = field(default_factory=list)
    submit: list[BatchJobToSubmit]
    cancel: list[str]
    left: int


NeedKind = Literal[
    "service",
    "judge",
    "node",
    "deadline",
    "slowdown",
    "failing",
    "failed",
    "memory",
    "idle",
    "quota",
]


@frozen_by_name
class Need:
    """A thing that needs a person: `text` says what is wrong and `step` what to do about it.

    `count` are the jobs, nodes or findings it is about, of which `jobs` and `nodes` name a few;
    `about` is what the jobs have in common. It is of no tenant where it is about the cluster.
    """

    kind: NeedKind
    tenant: str
    text: str
    step: str
    count: int = 1
    about: str = ""
    jobs: list[JobName] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


@frozen_by_name
class Needs:
    """Things that need a person, the gravest first, some of each kind; `more` are left out."""

    needs: list[Need]
    more: int
