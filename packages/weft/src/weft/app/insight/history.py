"""The past as a log tells it: its jobs, its machines, and how fast jobs were on what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.codec.event_lines import read_event
from weft.core.errors import InvalidConfig, WeftError
from weft.core.events.event import (
    Awoke,
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    NodeUp,
    PolicyChanged,
    Reported,
    Slept,
    Started,
    Stopped,
    Submitted,
)
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Job, JobId, NodeId
from weft.core.protocols import Store
from weft.core.spec.part_spec import PartSpec
from weft.perf.believed import Believed
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.runtime.records.ledger import Ledger

MOST_EVENTS = 200_000
CHUNK = 1_000  # events: appending waits for no more than these are read


@dataclass(slots=True)
class ObservedSpeeds:
    """The speeds of jobs on what they held; learnt from their reports, and never forgotten."""

    beliefs: FittedBeliefs = field(default_factory=FittedBeliefs)
    nodes: dict[NodeId, Node] = field(default_factory=dict)
    _jobs: dict[JobId, Job] = field(default_factory=dict)
    _on: dict[JobId, Allocation] = field(default_factory=dict)
    _since: dict[JobId, float] = field(default_factory=dict)
    _ran: defaultdict[JobId, list[tuple[Allocation, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def perf(self) -> Believed:
        """The observed speeds as the truth of a simulation."""
        kinds = {job: self._kind(ran[0][0]) for job, ran in self._ran.items()}
        return Believed(self.beliefs, kinds)

    def worked(self, job: Job, perf: Believed) -> float | None:
        """Seconds of work done, as on what the job asked for; None where reports do not tell."""
        if job.id not in self._ran or not perf.knows(job):
            return None
        return sum(
            seconds * on.sharing.share * self._speed(perf, job, on)
            for on, seconds in self._ran[job.id]
        )

    def ran_s(self, job: JobId) -> float | None:
        """Seconds in which it ran; None if the log was not read from its submission on."""
        if job not in self._jobs:
            return None
        return sum(seconds for _, seconds in self._ran.get(job, ()))

    def fold(self, at: float, event: Event) -> None:
        """Take in one event of the log."""
        match event:
            case Submitted(job):
                self._jobs[job.id] = job
            case NodeUp(node):
                self.nodes[node.id] = node
            case Decided(_, changes):
                for name, to in changes.items():
                    if to is not None:
                        self._pause(name, at, again=name in self._since)
                        self._on[name] = to
            case Started(name) | Awoke(name):
                self._since[name] = at
            case Reported(name, _, report) if name in self._jobs and name in self._on:
                kind = self._kind(self._on[name])
                if kind:
                    self.beliefs.observe(self._jobs[name], kind, report)
            case Stopped(name) | Slept(name) | Finished(name) | Failed(name) | Cancelled(name):
                self._pause(name, at)

    def _pause(self, job: JobId, at: float, *, again: bool = False) -> None:
        since = self._since.pop(job, None)
        if since is not None and job in self._on:
            self._ran[job].append((self._on[job], at - since))
        if again:
            self._since[job] = at

    def _kind(self, on: Allocation) -> str:
        node = self.nodes.get(on.slices[0].node)
        return "" if node is None else node.kind

    def _speed(self, perf: Believed, job: Job, on: Allocation) -> float:
        kind = self._kind(on)
        if not kind:
            return on.gpus / max(job.demand.gpus, 1)
        return perf.speed(job, kind, len(on.slices), on.gpus)


def read_speeds(store: Store) -> ObservedSpeeds:
    """The speeds of the jobs of a service's log; a long log is read from its middle on."""
    speeds = ObservedSpeeds()
    at = max(store.last_seq() - MOST_EVENTS, 0)
    while rows := store.since(at, CHUNK):
        for seq, when, event in rows:
            at = seq
            speeds.fold(when, event)
    return speeds


@dataclass(slots=True)
class LogHistory:
    """A log as far as it was read: records of jobs, speeds, policies, and its end."""

    ledger: Ledger = field(default_factory=Ledger)
    speeds: ObservedSpeeds = field(default_factory=ObservedSpeeds)
    policy: PartSpec | None = None
    at: float = 0.0

    @property
    def cluster(self) -> Cluster:
        """The machines that the log tells about; none in a log of a simulation."""
        return Cluster(tuple(self.speeds.nodes.values()))

    def fold(self, at: float, event: Event) -> None:
        self.at = max(self.at, at)
        self.ledger.fold(at, event)
        self.speeds.fold(at, event)
        if isinstance(event, PolicyChanged):
            self.policy = event.policy


def read_history(lines: Iterable[str], name: str) -> LogHistory:
    """A file of events, as `weft simulate --events` writes it and the service's log holds it."""
    history = LogHistory()
    for number, line in enumerate(lines, 1):
        try:
            history.fold(*read_event(line))
        except (KeyError, TypeError, ValueError, WeftError) as error:
            raise InvalidConfig(
                f"{name}, line {number}: not an event: {error}",
                hint="`weft simulate --events FILE` writes such files",
            ) from error
    return history


def read_history_file(path: Path) -> LogHistory:
    """The history in a log file."""
    try:
        with path.open(encoding="utf-8") as lines:
            return read_history(lines, str(path))
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
