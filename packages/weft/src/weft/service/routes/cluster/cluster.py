"""The cluster as a whole: its machines, its policy, what it does."""

from __future__ import annotations

import inspect
import sys
from collections import Counter, defaultdict
from functools import cache, partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from weft.app.catalogue import read_entries
from weft.core.errors import UnknownName
from weft.core.model.cluster import CPU
from weft.core.model.job import NodeId
from weft.core.plan.about import Controls
from weft.core.spec.parameters import parameters
from weft.core.spec.part_spec import write_value
from weft.core.spec.registry import find
from weft.frozen import frozen
from weft.runtime.loop.driver import Driver
from weft.runtime.records.job_records import ALL
from weft.runtime.records.status import count_words, words_but_pending
from weft.service.access.trust import trust_warnings
from weft.service.context import PREFIX, PROBLEMS, Admin, Anyone, Context, Service
from weft.service.http.replies import HttpProblem, Json
from weft.service.jobs.job_view import node_answers
from weft.service.requests.fields import RequestBody
from weft.service.requests.job_file import PolicySpec, PolicyText, describe_policy
from weft.service.responses.answers import (
    ClusterAnswer,
    Counts,
    Done,
    NodeCheck,
    Nodes,
    PolicyAnswer,
)
from weft.service.responses.job_row import GpuHealth, GpuSeries, NodeDevices
from weft.service.responses.watch import PolicyEntries, PolicyEntry
from weft.service.routes.people.reservations import check_devices
from weft.stack.windows import DRAIN, read_window

router = APIRouter(prefix=PREFIX, tags=["cluster"], responses=PROBLEMS)


class NewPolicy(RequestBody):
    """A policy by name, with parameters: `las:by=time`, or its fields."""

    policy: PolicyText | PolicySpec


@router.get("/cluster", response_model=ClusterAnswer)
async def cluster(service: Service, who: Anyone) -> Json:
    """Devices, how many are held, and how many jobs wait. Jobs counted are the caller's own."""
    driver = service.driver
    state = driver.scheduler.state
    held = count_held_by_kind(driver)
    whose = ALL if who.everywhere else who.tenant
    counts = Counter({word: n for word, n in driver.ledger.jobs.counts(whose).items() if n})
    jobs = driver.ledger.jobs
    words = words_but_pending(jobs, state)
    counts.update(count_words(jobs, words, whose))
    running = (j for j, word in words.items() if word == "running")
    mine = (jobs.live[j] for j in running if whose in (ALL, jobs.active[j]))
    useful = sum((record.goodput or 0.0 for record in mine), 0.0)
    kinds = {
        kind: Counts(gpus=count, held=held.get(kind, 0.0))
        for kind, count in state.cluster.gpus_by_kind.items()
    }
    return Json(
        ClusterAnswer(
            now=driver.now,
            policy=service.live.policy.text,
            engine=service.live.engine.text,
            trouble=driver.trouble,
            nodes=len(state.cluster.nodes),
            gpus=state.cluster.gpus,
            held=sum(held.values()),
            kinds=kinds,
            jobs=dict(counts),
            waiting=counts["pending"] + counts["preempted"],
            running=counts["running"],
            goodput=useful,
            decisions=state.decisions,
            seq=driver.seq,
            warnings=trust_warnings(service.live, service.tokens) if who.admin else [],
        )
    )


@router.get("/nodes", response_model=Nodes)
async def nodes(service: Service, who: Anyone) -> Json:  # noqa: ARG001 - any token will do
    """All machines, with their state and the number of devices in use."""
    return Json(Nodes(nodes=node_answers(service.live)))


@router.get("/nodes/{node_id}/devices", response_model=NodeDevices)
async def devices(
    node_id: str,
    service: Service,
    who: Anyone,  # noqa: ARG001 - any token will do
    since: Annotated[float, Query(ge=0.0, le=1e12, allow_inf_nan=False)] = 0.0,
) -> Json:
    """The use of a machine's GPUs in the last hours, by their driver, for all jobs on them."""
    read = partial(service.live.device_history.read, _node(service, node_id), since)
    history = await service.read(read)
    gpus = [GpuSeries(gpu=gpu.gpu, **gpu.counters) for gpu in history.gpus]
    return Json(NodeDevices(at=history.at, gpus=gpus))


@router.post("/nodes/{node_id}/drain", response_model=Done)
async def drain(
    node_id: str,
    service: Service,
    who: Admin,
    gpus: Annotated[str, Query(max_length=200, pattern=r"^[0-9,-]*$")] = "",
    when_done: bool = False,
    why: Annotated[str, Query(max_length=200)] = "",
) -> Json:
    """Move every job off a machine and place no more there; with `gpus=0,2-3`, only off those.

    With `when_done` jobs that are there run to their end. `why` is for those who ask later.
    """
    node = _node(service, node_id)
    if not gpus and not when_done:
        await service.live.drain(node, who.word, why)
        return Json(Done(done=f"node {node_id} is drained"))
    devices = f"{node_id}:{gpus}" if gpus else node_id
    check_devices(service, devices)
    window = read_window(devices, f"{'~' * when_done}{devices}")
    rules = service.live.quotas.with_window(f"{DRAIN}{devices}", window.text)
    await service.live.set_quotas(rules, who.word, why)
    how = "drained when its jobs have ended" if when_done else "drained"
    return Json(Done(done=f"{devices} is {how}"))


@router.post("/nodes/{node_id}/undrain", response_model=Done)
async def undrain(node_id: str, service: Service, who: Admin) -> Json:
    """Put a machine that was drained or set aside back into service, with all its devices."""
    node = _node(service, node_id)
    await service.live.use_again(node, who.word)
    return Json(Done(done=f"node {node_id} is in use"))


@router.post("/nodes/{node_id}/check", response_model=NodeCheck)
async def check(node_id: str, service: Service, who: Admin) -> Json:  # noqa: ARG001
    """Have a machine open each of its GPUs that no job holds, and allocate there."""
    node, checks = _node(service, node_id), service.driver.engine.node_checks
    (answer,) = (answer for answer in node_answers(service.live) if answer.id == node)
    if checks is None or answer.kind == CPU:
        raise HttpProblem(409, f"{node_id} has no GPUs to check")
    if answer.state == "down":
        raise HttpProblem(409, f"{node_id} is down", answer.reason)
    free = sorted({*range(answer.gpus)} - {*answer.held_gpus})
    if not free:
        hint = f"`weft drain {node_id}` moves its jobs elsewhere"
        raise HttpProblem(409, f"jobs hold all GPUs of {node_id}", hint)
    faults = await checks.check_node(node, free)
    gpus = [GpuHealth(gpu=gpu, fault=fault) for gpu, fault in sorted(faults.items())]
    return Json(NodeCheck(id=node, gpus=gpus))


@router.get("/policy", response_model=PolicyAnswer)
async def policy(service: Service, who: Anyone) -> Json:  # noqa: ARG001
    """The current policy."""
    return Json(_policy(service))


@router.put("/policy", response_model=PolicyAnswer)
async def set_policy(body: NewPolicy, service: Service, who: Admin) -> Json:
    """Use another policy from now on; running jobs keep their devices until it decides."""
    try:
        await service.live.set_policy(describe_policy(body.policy), who.word)
    except UnknownName as error:
        raise HttpProblem(422, error.what, error.hint, "policy") from error
    return Json(_policy(service))


def count_nodes(service: Context) -> dict[str, int]:
    """Machines by state, as shown to people."""
    return dict(Counter(answer.state for answer in node_answers(service.live)))


def _policy(service: Context) -> PolicyAnswer:
    spec = service.live.policy
    return PolicyAnswer(policy=spec.text, spec=spec, trouble=service.driver.trouble)


def count_held_by_kind(driver: Driver) -> dict[str, float]:
    """GPUs promised, by kind, shares counted as such."""
    state = driver.scheduler.state
    held: defaultdict[str, float] = defaultdict(float)
    for on in state.table.allocations:
        if on is not None:
            held[state.cluster.kind_of(on)] += on.counted_gpus
    return held


def _node(service: Context, name: str) -> NodeId:
    known: list[Any] = [node.id for node, _ in service.driver.nodes()]
    if name not in known:
        raise UnknownName.among("node", name[:64], known, "weft nodes")
    return NodeId(name)


@router.get("/policies", response_model=PolicyEntries)
async def policies(service: Service, who: Anyone) -> Json:  # noqa: ARG001 - any token will do
    """All policies with their paper, objective and parameters, and the current one."""
    pages = await service.read(read_policy_pages)
    supports = service.driver.engine.supports
    entries = [_entry(page, supports) for page in pages]
    return Json(PolicyEntries(active=service.live.policy.text, policies=entries))


def _entry(page: PolicyPage, supports: Controls) -> PolicyEntry:
    missing = page.controls & ~supports
    names = ", ".join(flag.name.lower() for flag in missing if flag.name)
    return PolicyEntry(
        name=page.name,
        summary=page.summary,
        said=page.sections,
        sections=page.sections,
        parameters=page.settable,
        tags=list(page.tags),
        refused=f"it sets {names}, which this engine cannot honour" if names else "",
    )


# What policies are, as their modules say: the paper, what they optimise, their parameters.

FIELDS = ("Paper", "Objective", "Needs", "Controls", "Cost", "Deviations")


@frozen
class PolicyPage:
    """One policy. `settable` are its parameters by name, with their defaults as people write them.

    `controls` is what it sets of an allocation.
    """

    name: str
    summary: str
    sections: dict[str, str]
    settable: dict[str, str]
    tags: tuple[str, ...]
    controls: Controls


@cache
def read_policy_pages() -> tuple[PolicyPage, ...]:
    """Every policy, in the order of names."""
    pages = []
    for entry in read_entries("policy"):
        part = find("policy", entry.name)
        sections = docstring_fields(inspect.getdoc(sys.modules[part.__module__]) or "")
        settable = {key: write_value(value) for key, (_, value) in parameters(part).items()}
        pages.append(
            PolicyPage(
                entry.name, entry.summary, sections, settable, entry.tags, part().about.controls
            )
        )
    return tuple(pages)


def docstring_fields(doc: str) -> dict[str, str]:
    """The fields of a policy's module docstring, each on one line."""
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in doc.splitlines():
        word, _, rest = line.partition(" ")
        if word in FIELDS:
            current = sections.setdefault(word, [])
            line = rest
        elif line and not line.startswith(" "):
            current = None
        if current is not None and line.strip():
            current.append(line.strip())
    return {field: " ".join(lines) for field, lines in sections.items()}
