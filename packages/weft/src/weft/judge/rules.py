"""Room for a job under the rules that the log names: quotas and kept devices, counted again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf

from weft.core.model.job import Job
from weft.frozen import frozen
from weft.judge.devices import Device, could_start, gpus_of
from weft.judge.replay import PlayedLog

WINDOW = re.compile(
    r"~?(?P<nodes>[^@=~]+)(?:@(?P<start>[\d.]+)?-(?P<end>[\d.]+)?)?(?:=(?P<tenant>.+))?"
)


@frozen
class KeptWindow:
    """Devices by node (None: all of it) that only `tenant` may use from `start` to `end`.

    `soft`: jobs that were there before may stay.
    """

    name: str
    devices: dict[str, frozenset[int] | None]
    start: float
    end: float
    tenant: str
    soft: bool

    def covers(self, device: Device) -> bool:
        if device[0] not in self.devices:
            return False
        chosen = self.devices[device[0]]
        return chosen is None or device[1] in chosen

    def forbids_start(self, job: Job, now: float) -> bool:
        """Return true if a job may not start on them now."""
        if (self.tenant and job.tenant == self.tenant) or now >= self.end:
            return False
        limit = job.launch.time_limit_s if job.launch is not None else 0.0
        return now >= self.start or not limit or now + limit > self.start


def windows(replay: PlayedLog) -> list[KeptWindow]:
    """Return the windows of the present rules."""
    written = replay.rules("reserve").get("windows", {})
    pairs = written.items() if isinstance(written, Mapping) else ()
    return [window for name, text in pairs if (window := _window(str(name), str(text)))]


def _window(name: str, text: str) -> KeptWindow | None:
    match = WINDOW.fullmatch(text.strip())
    if match is None:
        return None
    devices: dict[str, frozenset[int] | None] = {}
    for part in match["nodes"].split("+"):
        node, colon, numbers = part.partition(":")
        devices[node] = frozenset(_numbers(numbers)) if colon else None
    start, end = float(match["start"] or 0.0), float(match["end"] or inf)
    return KeptWindow(name, devices, start, end, match["tenant"] or "", text.startswith("~"))


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


def kept_from(replay: PlayedLog, job: Job) -> frozenset[Device]:
    """Devices that a job may not start on now."""
    barring = [window for window in windows(replay) if window.forbids_start(job, replay.now)]
    return frozenset(
        (node.id, gpu)
        for node in replay.nodes.values()
        for gpu in range(node.gpus)
        if any(window.covers((node.id, gpu)) for window in barring)
    )


def limits(replay: PlayedLog) -> dict[tuple[str, str], float]:
    """GPUs that tenants may hold at most, by tenant and kind (empty: any)."""
    written = replay.rules("quota").get("limits", {})
    if not isinstance(written, Mapping):
        return {}
    pairs = ((str(name).partition("@"), float(limit)) for name, limit in written.items())
    return {(tenant, kind): limit for (tenant, _, kind), limit in pairs}


def held_by(replay: PlayedLog, tenant: str, kind: str = "") -> float:
    """GPUs that a tenant's jobs are promised, of a kind or of any."""
    total = 0.0
    for name, on in replay.held():
        if replay.jobs[name].job.tenant == tenant and on.slices:
            node = replay.nodes.get(on.slices[0].node)
            if not kind or (node is not None and node.kind == kind):
                total += gpus_of(on)
    return total


def over_limit(replay: PlayedLog, job: Job) -> bool:
    """Return true if a job would take its tenant over its limit on every kind it could use."""
    asks = replay.least_gpus(job) * job.demand.share
    known = limits(replay)
    limit = known.get((job.tenant, ""), inf)
    if held_by(replay, job.tenant) + asks > limit + 1e-6:
        return True
    kinds = job.demand.kinds or tuple({node.kind for node in replay.nodes.values()})
    return bool(kinds) and all(
        (job.tenant, kind) in known
        and held_by(replay, job.tenant, kind) + asks > known[job.tenant, kind] + 1e-6
        for kind in kinds
    )


def fits_idle_devices(replay: PlayedLog, job: Job, kept: frozenset[Device]) -> bool:
    """True if a job could start on what is promised to no job and not `kept`."""
    claims = replay.claims()
    if job.demand.max == 0:
        return _has_host(replay, job)
    if job.demand.share < 1.0 and any(
        claims.has_part(node, job.demand.share, kept)
        for node in replay.nodes.values()
        if not job.demand.kinds or node.kind in job.demand.kinds
    ):
        return True
    return could_start(job, replay.least_gpus(job), replay.nodes, claims, kept)


def _has_host(replay: PlayedLog, job: Job) -> bool:
    """Room on a host for a job without devices."""
    hosted = replay.claims().hosted
    for node in replay.nodes.values():
        cpus, mem_gb = hosted.get(node.id, (0.0, 0.0))
        enough = not node.cpus or cpus + (job.cpus or 0.0) <= node.cpus + 1e-6
        if enough and (not node.mem_gb or mem_gb + (job.mem_gb or 0.0) <= node.mem_gb + 1e-6):
            return True
    return False
