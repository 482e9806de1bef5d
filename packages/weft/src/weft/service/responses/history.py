"""Answers about the last month of the cluster and of its machines."""

from __future__ import annotations

from weft.frozen import frozen_by_name


@frozen_by_name
class KindHistory:
    """GPUs of one kind in each window: all of them, those out of use, those that jobs held."""

    kind: str
    gpus: list[float]
    out: list[float]
    used: list[float]


@frozen_by_name
class UseHistory:
    """The use of one kind of GPU by a tenant's jobs, means of each window; empty: not measured.

    `steps` and `goodput` (useful samples) are per second, as jobs report them; `busy` is the part
    of the time in which GPUs ran a kernel.
    """

    tenant: str
    kind: str
    used: list[float]
    running: list[float]
    steps: list[float]
    goodput: list[float]
    busy: list[float | None]
    memory_gb: list[float]
    power_w: list[float]


@frozen_by_name
class QueueHistory:
    """A tenant's waiting jobs and the GPUs they ask for, means of each window; and counts.

    `started` are first starts and `waited_s` the seconds that those jobs had waited, all together;
    `failed` are attempts that failed of their own doing.
    """

    tenant: str
    waiting: list[float]
    wanted_gpus: list[float]
    started: list[float]
    waited_s: list[float]
    failed: list[float]


@frozen_by_name
class HistoryMark:
    """An event in the life of a machine, some of its GPUs, or the policy.

    `what`: `drained`, `aside` (set aside for its faults), `down`, `back`, `joined`, `policy`, or
    `rules` (quotas or reservations). `about` is the machine, `MACHINE:GPUS`, or the policy.
    """

    at: float
    what: str
    about: str
    node: str
    by: str
    why: str


@frozen_by_name
class ClusterHistoryAnswer:
    """The cluster in windows of `window_s` that begin at `at` and were seen for `seconds`.

    `begun` is when the history began. `kinds` count the jobs of all tenants, `use` and `queues`
    those that the caller may see; tenants with little are one, named `*`.
    """

    now: float
    begun: float
    window_s: float
    at: list[float]
    seconds: list[float]
    kinds: list[KindHistory]
    use: list[UseHistory]
    queues: list[QueueHistory]
    decisions: list[float]
    moves: list[float]
    marks: list[HistoryMark]


@frozen_by_name
class NodeHistoryAnswer:
    """The past of a machine, oldest first; `out` is why it, or GPUs of it, are out of use."""

    marks: list[HistoryMark]
    out: list[HistoryMark]
