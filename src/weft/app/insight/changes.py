"""What might be different: another policy, other rules, more machines, a job of another size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from weft.app.insight.present import Present
from weft.app.serve.rules import Quotas, without_wrappers
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Job, JobId, NodeId
from weft.core.model.trace import Trace, Truth
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import Described, build, read_spec
from weft.frozen import frozen
from weft.perf.believed import Believed
from weft.plural import say_gpus
from weft.runtime.deciding.live_policy import live_policy


@frozen
class Changes:
    """Whatever is set is different; the rest is as it is.

    `policy` is a policy as a person names it. `limits` and `weights` are of those tenants that are
    named. `nodes` are more machines, written as a cluster. `sizes` are GPUs of jobs by id.
    """

    policy: PartSpec | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    nodes: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.policy, self.limits, self.weights, self.nodes, self.sizes))

    def label(self, policy: str) -> str:
        """What the changed one is called beside `policy`, which decides as it is."""
        what = [
            *(f"limit {who}={gpus:g}" for who, gpus in self.limits.items()),
            *(f"weight {who}={weight:g}" for who, weight in self.weights.items()),
            *([f"{self.nodes} more"] if self.nodes else []),
            *(f"{job} at {say_gpus(gpus)}" for job, gpus in self.sizes.items()),
        ]
        named = self.policy.text if self.policy else policy
        return f"{named}, {', '.join(what)}" if what else named

    def around(self, policy: PartSpec, rules: Quotas) -> PartSpec:
        """What decides then: `policy` is what a person named, `rules` what holds."""
        changed = replace(
            rules,
            limits={**rules.limits, **self.limits},
            weights={**rules.weights, **self.weights},
        )
        spec = changed.around(without_wrappers(self.policy or policy))
        build("policy", spec)
        return spec

    def cluster(self, cluster: Cluster) -> Cluster:
        """The machines there are then."""
        if not self.nodes:
            return cluster
        return Cluster((*cluster.nodes, *more_nodes(self.nodes, cluster)), cluster.name)

    def present(self, present: Present, policy: PartSpec, rules: Quotas) -> Present:
        """A live state in which this is so."""
        there = replace(present, cluster=self.cluster(present.cluster))
        if self.policy or self.limits or self.weights:
            there = replace(there, policy=live_policy(self.around(policy, rules)), memory=None)
        for name, gpus in self.sizes.items():
            if JobId(name) not in there.table:
                raise UnknownName(f"no job {name!r} runs or waits", hint="`weft jobs` lists them")
            row = there.table.row(JobId(name))
            there = there.with_job(resized(there.table.jobs[row], gpus)).released(JobId(name))
        return there

    def trace(self, trace: Trace, perf: Believed) -> Trace:
        """Past jobs of which this is so: what they work stays, how long that takes does not."""
        missing = set(self.sizes) - {job.id for job, _ in trace}
        if missing:
            raise UnknownName(f"no job {sorted(missing)[0]!r} in the past that is replayed")
        pairs = tuple(
            _resized_pair(job, truth, self.sizes[job.id], perf)
            if job.id in self.sizes
            else (job, truth)
            for job, truth in trace
        )
        return replace(trace, jobs=pairs)


def resized(job: Job, gpus: int) -> Job:
    """The job asking for exactly that many GPUs."""
    if gpus < 1:
        raise InvalidConfig(f"job {job.id!r} at {say_gpus(gpus)}", hint="ask for at least 1")
    demand = job.demand
    return replace(job, demand=replace(demand, gpus=gpus, min=gpus, max=gpus))


def more_nodes(text: str, beside: Cluster) -> list[Node]:
    """Machines as a cluster is written, with unused names."""
    taken, nodes = {node.id for node in beside.nodes}, []
    for number, node in enumerate(parse_cluster(text).nodes):
        name = node.id if node.id not in taken else NodeId(f"more-{number}")
        nodes.append(replace(node, id=name))
    return nodes


def read_named(policy: Described | None) -> PartSpec | None:
    """A policy as a person named it."""
    return None if policy is None else without_wrappers(read_spec("policy", policy))


def _resized_pair(job: Job, truth: Truth, gpus: int, perf: Believed) -> tuple[Job, Truth]:
    changed = resized(job, gpus)
    kind = job.demand.kinds[0] if job.demand.kinds else ""
    faster = perf.speed(job, kind, 1, gpus)
    return changed, replace(truth, length=truth.length / max(faster, 1e-9))
