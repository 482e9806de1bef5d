"""Lawful: gangs whole, devices and memory never over-claimed, nothing where it may not be."""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.events import event as facts
from weft.core.model.job import Allocation, Job, JobId
from weft.judge.devices import DeviceClaims, devices_of
from weft.judge.log_lines import LogLine
from weft.judge.replay import LogWatch, PlayedLog
from weft.plural import say_gpus

BEGINS = (facts.Started, facts.Resized, facts.Awoke)


class LawfulWatch(LogWatch):
    """Looks at promises after every decision, and at processes after every start."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()  # reported once, not at every line

    def after(self, replay: PlayedLog, line: LogLine) -> None:
        event = line.event
        if isinstance(event, facts.Decided) and event.changes:
            self._promises(replay, event.changes)
        elif isinstance(event, BEGINS):
            self._processes(replay, event.job)

    def _promises(self, replay: PlayedLog, changes: Mapping[JobId, Allocation | None]) -> None:
        for name, on in changes.items():
            if on is not None and name in replay.jobs:
                problem = whole_gang(replay.jobs[name].job, on, replay)
                if problem:
                    replay.report_impossible("gang not whole", (name,), problem)
        if replay.knows_nodes:
            self._claims(replay, replay.claims(), "")
        alone = {life.job.id for life in replay.active.values() if not life.job.shareable}
        for device, owners in replay.claims().owners.items() if alone else ():
            if len(owners) > 1 and not alone.isdisjoint(owners):
                self._once(replay, "shares its device", tuple(owners), f"{device[0]}:{device[1]}")

    def _processes(self, replay: PlayedLog, job: str) -> None:
        """Processes of two jobs on one device, whatever was promised."""
        mine = {d for name, on in replay.physical() if name == job for d in devices_of(on)}
        near = [(n, on) for n, on in replay.physical() if not mine.isdisjoint(devices_of(on))]
        claims = DeviceClaims()
        for name in dict.fromkeys(name for name, _ in near):
            seen: set[tuple[str, int]] = set()
            for on in (on for other, on in near if other == name):
                for device in devices_of(on):  # of a job that resizes each counts once
                    if device not in seen and on.sharing.tier == 0:
                        claims.parts[device] = claims.parts.get(device, 0.0) + on.sharing.share
                        claims.owners.setdefault(device, []).append(name)
                        seen.add(device)
        for device in sorted(mine):
            if (part := claims.parts.get(device, 0.0)) > 1.0 + 1e-6:
                text = f"processes of {part:g} times a whole GPU run on {device[0]}:{device[1]}"
                self._once(replay, "two on a device", tuple(claims.owners[device]), text)

    def _claims(self, replay: PlayedLog, claims: DeviceClaims, prefix: str) -> None:
        for what, jobs, text in claims.faults(replay.nodes):
            self._once(replay, what, jobs, prefix + text)

    def _once(self, replay: PlayedLog, what: str, jobs: tuple[str, ...], text: str) -> None:
        if (what, key := "+".join(jobs) or text) not in self._known:
            self._known.add((what, key))
            replay.report_impossible(what, jobs, text)


def whole_gang(job: Job, on: Allocation, replay: PlayedLog) -> str:
    """Say what is wrong with an allocation as that of a job; empty if nothing is."""
    demand, count = job.demand, len([*devices_of(on)])
    if demand.max == 0:
        return f"it asks for no device and gets {count}" if count else ""
    if not demand.min <= count <= demand.max:
        return f"it gets {count} of {demand.min} to {say_gpus(demand.max)}"
    sizes = [len(part.gpus) for part in on.slices]
    if demand.nodes and sizes != [count // demand.nodes] * demand.nodes:
        return f"it asks for {demand.nodes} nodes and gets {sizes}"
    kinds = {replay.nodes[part.node].kind for part in on.slices if part.node in replay.nodes}
    if len(kinds) > 1:
        return f"it gets GPUs of {', '.join(sorted(kinds))}"
    if demand.kinds and not kinds <= {*demand.kinds}:
        return f"it asks for {', '.join(demand.kinds)} and gets {', '.join(sorted(kinds))}"
    return ""
