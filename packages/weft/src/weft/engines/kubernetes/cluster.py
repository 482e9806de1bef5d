"""A Kubernetes cluster as a manager of gangs: a thin sender of what `pods` builds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, NodeId
from weft.core.model.launch import Launch
from weft.engines.attempts.agent_engine import AGENT_CONTROLS
from weft.engines.fleet.port import (
    Abilities,
    AttemptObservation,
    AttemptPhase,
    ControllerUnreachable,
    Gang,
    Key,
    Machine,
    NodeHealth,
)
from weft.engines.kubernetes.api import (
    FORBIDDEN,
    MISSING,
    Api,
    ApiError,
    ApiServerUnreachable,
    Object,
    Watching,
)
from weft.engines.kubernetes.namespaces import Namespace
from weft.engines.kubernetes.nodes import (
    RACK,
    SLICES,
    class_of,
    device_of,
    has_labels,
    machine_of,
    read_nodes,
    with_slices,
)
from weft.engines.kubernetes.pods import (
    Mount,
    PodSettings,
    check_volume,
    is_mounted,
    key_of,
    read_mount,
    request_fairly,
)
from weft.engines.kubernetes.sightings import (
    Refusals,
    created_at,
    ended_at,
    is_over,
    seen_of,
    why_hopeless,
)
from weft.engines.kubernetes.weft_jobs import WeftJobs
from weft.frozen import frozen

log = logging.getLogger(__name__)

T = TypeVar("T")
NODES = "/api/v1/nodes"
ENDED_S = 300.0  # how long pods that have ended stay, for people who want to look at them
UNPULLED_S = 300.0  # how long an image may fail to be pulled
STUCK_S = 20.0  # a pod that is there so long after its grace time is on a node that is gone
# While the server was away no kubelet could show that it lives: nodes that were well before are not
# taken for lost until they had the time to do so (a lease is renewed every 10 s).
SETTLE_S = 45.0
OTHERS = "default"  # the tenant of a namespace that is no tenant's own
TOUCH_S = 5.0  # how often the server is asked where the watch has nothing to tell


@frozen
class NodeReader:
    """The way nodes are read: of `devices`, resources that jobs ask for, the first that a node has.

    `kind_label` and `rack_label` are the labels that give the kind of its GPUs, and its rack;
    `keep_cpus` and `keep_mem_gb` of each are left to other pods, `labels` chooses nodes, and `file`
    is a list of them for a service that may not read any.
    """

    devices: tuple[str, ...] = ("nvidia.com/gpu",)
    kind_label: str = ""
    rack_label: str = RACK
    keep_cpus: float = 0.0
    keep_mem_gb: float = 0.0
    labels: tuple[str, ...] = ()
    file: Path | None = None


class KubernetesCluster:
    """Pods in one namespace, or in one for each of `tenants`, which are then all there are.

    It needs the rights of a namespace, and to read nodes; of tenants' namespaces, the right to act
    as a service account there.
    """

    def __init__(
        self,
        api: Api,
        site: PodSettings,
        machines: NodeReader,
        tenants: Mapping[str, PodSettings] | None = None,
    ) -> None:
        self._api, self._site, self._machines = api, site, machines
        sites = tenants or {"": site}
        self._spaces = {
            tenant: Namespace(api, own_site, tenant) for tenant, own_site in sites.items()
        }
        self._nodes: Watching | None = None
        self._slices: Watching | None = None
        self._listed: Sequence[Object] = ()
        self._submitting: dict[Key, int] = {}
        self._since: dict[str, float] = {}
        self._hopeless: dict[Key, str] = {}
        self._well: set[NodeId] = set()
        self._refusals = Refusals()
        self._devices: dict[str, str] = {}
        self._touched = 0.0
        self._opened = False

    @property
    def abilities(self) -> Abilities:
        """Devices are the plug-in's to number; agents bind ranks to cores, pods limit memory."""
        return Abilities(AGENT_CONTROLS, images=True, sees_state=False, frees="part")

    @property
    def job_objects(self) -> WeftJobs | None:
        """Jobs that are applied to its namespaces; None where they are not watched."""
        return WeftJobs(self._spaces.values(), OTHERS) if self._site.weft_jobs else None

    # ---- life

    async def open(self, owner: str) -> None:
        """See whether we may do what we need, and begin to watch."""
        try:
            await self._ask(lambda: self._open(owner))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the watches; pods go on."""
        await asyncio.to_thread(self._close)

    def _open(self, owner: str) -> None:
        for space in self._spaces.values():
            space.open(owner)
        self._touched = time.monotonic()
        if any(map(class_of, self._machines.devices)):
            self._slices = Watching(self._api, SLICES)
            self._start_slices(self._slices)
        if self._machines.file is not None:
            listed, labels = read_nodes(self._machines.file), self._machines.labels
            self._listed = [node for node in listed if has_labels(node, labels)]
        else:
            self._nodes = Watching(self._api, NODES, ",".join(self._machines.labels))
            try:
                self._nodes.start()
            except ApiError as error:
                if error.code != FORBIDDEN:
                    raise
                raise EngineError(
                    "the service may not read the nodes of the cluster",
                    hint="an administrator applies deploy/kubernetes/rbac.yaml, or gives you the "
                    "output of `kubectl get nodes -o json` for --engine kubernetes:nodes_file=FILE",
                ) from error
        self._opened = True

    def _start_slices(self, slices: Watching) -> None:
        try:
            slices.start()
        except ApiError as error:
            if error.code not in (FORBIDDEN, MISSING):
                raise
            raise EngineError(
                f"devices cannot be claimed here: {error.what}",
                hint="claims need Kubernetes 1.34 or newer, and the right to read resourceslices, "
                "which deploy/kubernetes/rbac.yaml has; device=nvidia.com/gpu asks a plug-in",
            ) from error

    def _close(self) -> None:
        self._opened = False
        for space in self._spaces.values():
            space.close()
        for watching in filter(None, (self._nodes, self._slices)):
            watching.stop()
        self._api.close()

    # ---- what there is

    async def nodes(self) -> Sequence[Machine]:
        """Every node with devices, also those that are not ready."""
        known = self._known_nodes()
        how = self._machines
        read = partial(
            machine_of,
            keep_cpus=how.keep_cpus,
            keep_mem_gb=how.keep_mem_gb,
            tolerated=(*how.devices, *self._site.tolerate),
            kind_label=how.kind_label,
            rack_label=how.rack_label,
        )
        self._devices = {node["metadata"]["name"]: device_of(node, how.devices) for node in known}
        seen = [(node, self._devices[node["metadata"]["name"]]) for node in known]
        readings = [read(node, device=device) for node, device in seen if device]
        now = time.monotonic()
        machines = [
            replace(machine, taken=self._refusals.taken(machine.node.id, now))
            for machine in readings
            if machine is not None
        ]
        if self._nodes is not None and time.monotonic() - self._nodes.back < SETTLE_S:
            return [self._believe(machine) for machine in machines]
        self._well = {machine.node.id for machine in machines if machine.health is NodeHealth.UP}
        return machines

    def _believe(self, machine: Machine) -> Machine:
        """A node that was well before the server was away, and has not been seen since."""
        silent = machine.health is NodeHealth.DOWN and machine.node.id in self._well
        return replace(machine, health=NodeHealth.UP, reason="") if silent else machine

    def check(self, job: Job) -> None:
        """Refuse a job whose tenant has no namespace, and one whose folder pods do not see."""
        space = self._space_of(job.tenant)
        mounts, launch = space.site.mounts, job.launch
        if launch is None:
            return
        for volume in _volumes(launch):
            check_volume(job, volume, mounts, own=bool(space.tenant))
        workdir = Path(launch.workdir).absolute()
        if not is_mounted(workdir, mounts):
            seen = ", ".join(mount.path for mount in mounts)
            raise InvalidConfig(
                f"job {job.id!r}: pods do not see its workdir {str(workdir)!r}; they see {seen}",
                hint="submit from a folder below one of these, or let `weft serve` mount it: "
                "--engine kubernetes:mounts=CLAIM:/path",
            )

    def mounts(self, job: Job) -> Sequence[Mount]:
        """All that the pods of a job see."""
        own = _volumes(job.launch) if job.launch is not None else ()
        return (*self._space_of(job.tenant).site.mounts, *map(read_mount, own))

    async def poll(self) -> Mapping[Key, AttemptObservation]:
        """All attempts from our copy of their pods, once it is known to be fresh."""
        if time.monotonic() - self._touched > TOUCH_S:
            first = next(iter(self._spaces.values()))
            api, path = (first.api, first.path) if self._nodes is None else (self._api, NODES)
            await self._ask(lambda: api.get(path, limit="1", resourceVersion="0"))
            self._touched = time.monotonic()
        gangs: dict[Key, list[Object]] = {}
        for space in self._spaces.values():
            for pod in self._away_or(space.pods).values():
                key = key_of(pod)
                if key is not None:
                    gangs.setdefault(key, []).append(pod)
        self._note_times(gangs)
        machines = await self.nodes()
        down = [machine for machine in machines if machine.health is NodeHealth.DOWN]
        lost = {str(machine.node.id): machine.reason for machine in down}
        every = [pod for pods in gangs.values() for pod in pods]
        gpus = {machine.node.id: machine.node.gpus for machine in machines}
        self._refusals.note(every, gpus, time.monotonic())
        stuck = {name for name, since in self._since.items() if _passed(since, STUCK_S)}
        seen = {key: self._see(key, pods, lost, stuck) for key, pods in gangs.items()}
        for key, parts in self._submitting.items():
            if len(gangs.get(key, ())) < parts:
                seen[key] = AttemptObservation(AttemptPhase.PENDING, "its pods are being created")
        await self._clear_away(gangs, seen)
        return seen

    # ---- what is asked for

    async def submit(self, gang: Gang) -> None:
        """Ask the server whether it would take all pods, then create them."""
        known = {machine.node.id: machine.node for machine in await self.nodes()}
        parts = tuple(
            replace(
                request_fairly(part, known.get(part.node)), device=self._devices.get(part.node, "")
            )
            for part in gang.parts
        )
        asked, space = replace(gang, parts=parts), self._space_of(gang.tenant)
        self._submitting[gang.key] = len(parts)
        try:
            await self._ask(lambda: space.submit(asked))
        finally:
            self._submitting.pop(gang.key, None)

    async def cancel(self, key: Key) -> None:
        """Delete its pods; kubelets end what runs in them."""
        spaces = self._spaces.values()
        for space in [candidate for candidate in spaces if candidate.has(key)] or spaces:
            await self._ask(partial(space.cancel, key))

    # ---- parts

    def _space_of(self, tenant: str) -> Namespace:
        space = self._spaces.get("") or self._spaces.get(tenant)
        if space is None:
            raise InvalidConfig(
                f"tenant {tenant!r} has no namespace",
                hint="an admin adds a section to the file of --engine kubernetes:tenants=FILE",
            )
        return space

    def _see(
        self, key: Key, pods: Sequence[Object], lost: Mapping[str, str], stuck: set[str]
    ) -> AttemptObservation:
        if key in self._hopeless:
            return AttemptObservation(AttemptPhase.ENDED, self._hopeless[key])
        return seen_of(pods, lost, stuck)

    def _note_times(self, gangs: Mapping[Key, Sequence[Object]]) -> None:
        """Since when pods are to be gone: their server's clock need not be ours."""
        leaving: dict[str, float] = {}
        for pods in gangs.values():
            for pod in pods:
                meta = pod["metadata"]
                if "deletionTimestamp" in meta:
                    grace = float(meta.get("deletionGracePeriodSeconds") or 0)
                    name = str(meta["name"])
                    leaving[name] = self._since.get(name, time.monotonic() + grace)
        self._since = leaving

    async def _clear_away(
        self, gangs: Mapping[Key, Sequence[Object]], seen: dict[Key, AttemptObservation]
    ) -> None:
        """Delete pods that ended a while ago, and such as can never begin."""
        now = time.time()
        for key, pods in gangs.items():
            if any("deletionTimestamp" in pod["metadata"] for pod in pods):
                continue
            phase = seen[key].phase
            if phase in (AttemptPhase.ENDED, AttemptPhase.LOST) and _ended_before(
                pods, now - ENDED_S
            ):
                await self._clear(key)
            elif phase is AttemptPhase.PENDING and (why := _why_never(pods, now)):
                self._hopeless[key] = why
                seen[key] = AttemptObservation(AttemptPhase.ENDED, why)
                await self._clear(key)
        self._hopeless = {key: why for key, why in self._hopeless.items() if key in gangs}

    async def _clear(self, key: Key) -> None:
        with suppress(ControllerUnreachable):  # next time
            await self.cancel(key)

    def _known_nodes(self) -> Sequence[Object]:
        known = {str(node["metadata"]["name"]): node for node in self._listed}
        if self._nodes is not None:
            known = dict(self._away_or(self._nodes.objects))
        nodes = [known[name] for name in sorted(known)]
        if self._slices is None:
            return nodes
        return with_slices(nodes, self._slices.last().values(), self._machines.devices)

    def _away_or(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except ApiServerUnreachable as error:
            raise ControllerUnreachable(error.what) from error
        except ApiError as error:
            # A server that has just started knows no roles yet; and if ours were taken away, that
            # says nothing about jobs.
            if error.rights and self._opened:
                raise ControllerUnreachable(error.what) from error
            raise

    async def _ask(self, question: Callable[[], T]) -> T:
        return await asyncio.to_thread(lambda: self._away_or(question))


def _volumes(launch: Launch) -> Sequence[str]:
    return launch.software.volumes if launch.software is not None else ()


def _passed(since: float, seconds: float) -> bool:
    return time.monotonic() - since > seconds


def _ended_before(pods: Sequence[Object], at: float) -> bool:
    return all(is_over(pod) and (ended_at(pod) or created_at(pod)) <= at for pod in pods)


def _why_never(pods: Sequence[Object], now: float) -> str:
    """The reason why they cannot begin: what is certain at once, a missing image after a while."""
    for pod in pods:
        why, certain = why_hopeless(pod)
        if why and (certain or now - created_at(pod) > UNPULLED_S):
            return f"its container cannot be started: {why}"
    return ""
