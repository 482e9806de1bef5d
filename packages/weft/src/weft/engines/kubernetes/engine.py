"""The engine `kubernetes`: its options, and the cluster they describe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job
from weft.core.paths import expand
from weft.core.plan.about import Wants
from weft.engines.attempts.agent_engine import AGENT_CONTROLS
from weft.engines.fleet.engine import FleetEngine
from weft.engines.kubernetes.access import find_access
from weft.engines.kubernetes.api import Api
from weft.engines.kubernetes.cluster import KubernetesCluster, NodeReader
from weft.engines.kubernetes.namespaces import (
    ACCOUNT,
    NAMESPACE,
    read_classes,
    read_names,
    read_tenants,
)
from weft.engines.kubernetes.nodes import (
    DEVICE,
    RACK,
    class_of,
    read_devices,
    read_labels,
    read_taints,
)
from weft.engines.kubernetes.pods import (
    ADDRESSES,
    PLACES,
    Mount,
    PodSettings,
    is_mounted,
    own_ids,
    read_mounts,
    volume_met,
)
from weft.engines.machine.artifacts import ArtifactFolder
from weft.engines.machine.job_environment import check_names


@dataclass
class KubernetesEngine(FleetEngine):
    """Pods of a Kubernetes cluster, one for each node of a job, on exactly that node.

    `image` is the container that agents and jobs run in, unless a job names its own; it needs
    Python with weft, which `python` names. `mounts` are what pods see: claims, `NAME:/path`,
    secrets as files, `secret/NAME:/path`, and folders that every node has, `/path`, joined by `+`;
    without any it is the claim weft-jobs at the state's folder `jobs`. `namespace`, `context` and
    `kubeconfig` choose the cluster as they do for kubectl. `device` is what GPUs are called; of
    several, joined by `+`, a node's is the first it has; `claim/CLASS` is claimed by its class.
    `kind_label` and `rack_label` are labels of nodes that give the kind of GPUs and where a
    node stands. `place` is how pods are put on
    nodes: by `name`, or by a `selector` that the cluster's own scheduler obeys. `address` is how
    ranks find rank 0: by the name that a headless `service` gives its pod, or by the address of the
    `pod` or of the `node`, whose network pods then have. `nodes_file` has the output of `kubectl
    get nodes -o json` where nodes may not be read, `labels` chooses some of them, `tolerate` names
    taints of theirs, joined by `+`; `keep_cpus` and `keep_mem_gb` of each are left to other pods.
    `pull_secret`, `account` and `priority_class` are the pods' own; classes may differ by the
    priority of jobs, `NAME+guaranteed:NAME+spot:NAME`; `secrets`, joined by `+`, are
    those whose keys are variables of jobs. `tenants` is a file that gives each tenant a namespace,
    a service account whose rights are used there, and what its pods have. With `weft_jobs` jobs can
    also be applied as custom resources, WeftJob, to these namespaces.
    """

    state: Path = field(metadata={"settable": False})
    image: str = ""
    namespace: str = ""
    mounts: str = ""
    kubeconfig: str = ""
    context: str = ""
    python: str = "python3"
    device: str = DEVICE
    kind_label: str = ""
    rack_label: str = ""
    place: str = "name"
    address: str = "service"
    nodes_file: str = ""
    labels: str = ""
    tolerate: str = ""
    keep_cpus: float = 0.0
    keep_mem_gb: float = 0.0
    pull_secret: str = ""
    account: str = ""
    priority_class: str = ""
    secrets: str = ""
    tenants: str = ""
    weft_jobs: bool = False
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})

    wants = Wants.STATE | Wants.VARIABLES
    declares = (("", AGENT_CONTROLS),)

    def __post_init__(self) -> None:
        self.state = Path(self.state).absolute()
        access = find_access(self.kubeconfig, self.context)
        site = self._make_site(self.namespace or access.namespace)
        devices = read_devices(self.device)
        machines = NodeReader(
            devices=devices,
            kind_label=self.kind_label,
            rack_label=self.rack_label or RACK,
            keep_cpus=self.keep_cpus,
            keep_mem_gb=self.keep_mem_gb,
            labels=read_labels(self.labels),
            file=Path(self.nodes_file) if self.nodes_file else None,
        )
        tenants = self._read_tenants(site)
        cluster = KubernetesCluster(Api(access), site, machines, tenants)
        super().__init__(cluster, self.state, f"Kubernetes at {access.server}")
        self._mounts_of = cluster.mounts
        self.job_objects = cluster.job_objects

    def artifact_folder(self, job: Job) -> ArtifactFolder:
        """The folder on the volume where pods and service meet; others are pods' alone."""
        folder, jobs = super().artifact_folder(job), self.state / "jobs"
        whole, device = folder.workdir / folder.inside, jobs.stat().st_dev
        top = volume_met(whole, jobs, self._mounts_of(job))
        if not top or _device(folder.workdir) != device:
            raise InvalidConfig(
                f"the service does not see {str(whole)!r} as pods do",
                hint=f"let the job work in a folder on the volume of {jobs}, or write to an "
                "object store",
            )
        return replace(folder, volume=Path(top), device=device)

    def _make_site(self, namespace: str) -> PodSettings:
        if not self.image:
            raise InvalidConfig(
                "engine 'kubernetes' needs the name of an image",
                hint="build one from deploy/Containerfile, then --engine kubernetes:image=NAME",
            )
        if not NAMESPACE.fullmatch(namespace):
            raise InvalidConfig(f"namespace is {namespace!r}", hint="write a name like weft")
        for name, value, known in (
            ("place", self.place, PLACES),
            ("address", self.address, ADDRESSES),
        ):
            if value not in known:
                raise InvalidConfig(f"{name} is {value!r}", hint=f"one of {', '.join(known)}")
        if any(map(class_of, read_devices(self.device))) and self.place == "name":
            raise InvalidConfig(
                f"device is {self.device!r}, and the cluster's scheduler allocates what is claimed",
                hint="write place=selector beside it",
            )
        for name, text in (("account", self.account), ("pull_secret", self.pull_secret)):
            if text and not ACCOUNT.fullmatch(text):
                raise InvalidConfig(f"{name} is {text!r}", hint="a name as Kubernetes takes it")
        for name, kept in (("keep_cpus", self.keep_cpus), ("keep_mem_gb", self.keep_mem_gb)):
            if not kept >= 0.0:
                raise InvalidConfig(f"{name} is {kept:g}", hint=f"{name} is 0 or more")
        mounts = read_mounts(self.mounts, self.state)
        self._check_mounts(mounts, "mounts")
        check_names(self.pass_env)
        uid, gid = own_ids()
        return PodSettings(
            owner="",
            namespace=namespace,
            image=self.image,
            python=self.python,
            devices=read_devices(self.device),
            mounts=mounts,
            place=self.place,
            address=self.address,
            tolerate=read_taints(self.tolerate),
            account=self.account,
            pull_secret=self.pull_secret,
            priority_classes=read_classes(self.priority_class),
            secrets=read_names(self.secrets, "secrets"),
            weft_jobs=self.weft_jobs,
            env=tuple((name, os.environ[name]) for name in self.pass_env if name in os.environ),
            uid=uid,
            gid=gid,
        )

    def _read_tenants(self, others: PodSettings) -> dict[str, PodSettings]:
        if not self.tenants:
            return {}
        path = expand(self.tenants)
        tenants = read_tenants(path, others, self.state)
        for tenant, site in tenants.items():
            self._check_mounts(site.mounts, f"{path}: tenants.{tenant}.mounts")
        return tenants

    def _check_mounts(self, mounts: Sequence[Mount], where: str) -> None:
        if not is_mounted(self.state / "jobs", mounts):
            raise InvalidConfig(
                f"{where}: pods do not see {self.state / 'jobs'}, where jobs and service meet",
                hint=f"add CLAIM:{self.state / 'jobs'}, a volume that several nodes can write to",
            )


def _device(folder: Path) -> int | None:
    try:
        return folder.stat().st_dev
    except OSError:
        return None
