"""What the API tells those who watch: everything at first, then what changed."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from weft.frozen import frozen_by_name
from weft.service.responses.answers import NodeAnswer
from weft.service.responses.job_row import JobRow


@frozen_by_name
class Place:
    """Devices of one node."""

    node: str
    gpus: list[int]


@frozen_by_name
class WatchedJob(JobRow):
    """One job in short; times in seconds since the epoch.

    `GET /jobs/ID` has more. `why` is the number of its reason in `reasons`, 0 for none. `on` is
    where it runs, is about to run, or has not left yet. `share` is its fraction of each device,
    `pace` its measured speed beside its neighbours relative to alone. It is `suspended` from the
    request until it is resumed.
    """

    why: int
    pace: float | None
    share: float
    on: list[Place]
    suspended: bool = False


@frozen_by_name
class ClusterPulse:
    """The cluster in a few numbers; `held` counts devices."""

    now: float
    speed: float
    policy: str
    engine: str
    trouble: str
    gpus: int
    held: float
    decisions: int
    seq: int


@frozen_by_name
class Watched:
    """A message: everything in a `snapshot`, the changes in an `update`.

    If there are many jobs, a snapshot holds those that have devices; the others follow at once as
    updates, and only the last of these has an `id`. `nodes` are those that changed. `reasons` are
    the changed texts by number; jobs refer to them.
    """

    cluster: ClusterPulse
    nodes: list[NodeAnswer] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    jobs: list[WatchedJob] = field(default_factory=list)


@frozen_by_name
class Waiting:
    """A waiting job: its place among all, and quantiles of the simulated seconds until it starts.

    A value is null if the simulations did not reach it.
    """

    id: str
    place: int | None
    p10: float | None
    p50: float | None
    p90: float | None


@frozen_by_name
class Queue:
    """Waiting jobs; poll again after `again_s` seconds."""

    jobs: list[Waiting]
    again_s: float


@frozen_by_name
class LogRanks:
    """Ranks of an attempt that have a log."""

    attempt: int
    ranks: list[int]


@frozen_by_name
class JobText:
    """A job as fields of a job file, and as its text."""

    job: dict[str, Any]
    yaml: str


@frozen_by_name
class PolicyEntry:
    """One policy: its purpose, its origin, and its parameters with their defaults.

    `refused` is why this service cannot use it; empty if it can. `sections` are those of its
    page: Paper, Objective, Needs, Controls, Cost and Deviations; `said` is the same by its old
    name.
    """

    name: str
    summary: str
    said: dict[str, str]
    parameters: dict[str, str]
    tags: list[str]
    refused: str = ""
    sections: dict[str, str] = field(default_factory=dict)


@frozen_by_name
class PolicyEntries:
    """All policies, and the current one."""

    active: str
    policies: list[PolicyEntry]
