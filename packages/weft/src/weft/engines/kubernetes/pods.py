"""From a gang to its pods: pure."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Job
from weft.engines.fleet.port import AttemptPart, Gang, Key
from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.nodes import REQUEST, class_of, template_name
from weft.frozen import frozen
from weft.wire.attempt import ADDRESS
from weft.wire.doors import DOOR_ADDRESS

SERVICE = "weft-jobs"  # the headless service that gives every pod of a job a name
OWNER, JOB, ATTEMPT, PART = "weft/owner", "weft/job", "weft/attempt", "weft/part"
NAME, NODES = "weft/name", "weft/nodes"
MANAGED_BY = "app.kubernetes.io/managed-by"
SPARE_S = 15  # what a kubelet allows beyond a job's own grace time
LOST_NODE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
# Weft sees itself that a node is gone; the server's eviction only clears away. After an outage of
# the server it takes all nodes for gone until they renew their leases, and must not evict then.
LOST_NODE_S = 60
LONGEST_SLUG = 30
MOUNT = re.compile(r"(?:(secret/)?([a-z0-9][-a-z0-9.]*):)?(/[^:]*)(:r[ow])?")
PLACES = ("name", "selector")
ADDRESSES = ("service", "pod", "node")


@frozen
class Mount:
    """The path of a volume in pods: a claim's, a secret's files, else that folder of the node."""

    path: str
    claim: str = ""
    secret: str = ""
    read_only: bool = False


@frozen
class PodSettings:
    """Settings that all pods of this service have in common.

    `place` is "name" (bound to the node by its name, no scheduler in between) or "selector"
    (Kubernetes' own scheduler gets the only node that is allowed). `address` is how ranks find
    rank 0: by the headless service's name for its pod, by the pod's or by the node's address; with
    the last, pods have the node's network. `uid` and `gid` are those of the service. `acts_as` is
    the service account of the namespace whose rights pods are made with, empty for the service's.
    `priority_classes` are pods' classes by the priority of their job, empty for all others.
    `secrets` are those of the namespace whose keys are variables of its jobs. With `weft_jobs`
    jobs can be applied there as custom resources.
    """

    owner: str
    namespace: str
    image: str
    python: str = "python3"
    devices: tuple[str, ...] = ("nvidia.com/gpu",)
    mounts: tuple[Mount, ...] = ()
    place: str = "name"
    address: str = "service"
    tolerate: tuple[str, ...] = ()
    account: str = ""
    pull_secret: str = ""
    env: tuple[tuple[str, str], ...] = ()
    uid: int = 0
    gid: int = 0
    acts_as: str = ""
    priority_classes: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    weft_jobs: bool = False


def read_mounts(text: str, state: Path) -> tuple[Mount, ...]:
    """Mounts joined by `+`; without any the claim weft-jobs at the state's folder `jobs`."""
    mounts = tuple(map(read_mount, filter(None, text.split("+"))))
    return mounts or (Mount(str(state / "jobs"), "weft-jobs"),)


def read_mount(text: str) -> Mount:
    """`CLAIM:/path`, `secret/NAME:/path`, or `/path` of the node; `:ro` at the end is read-only."""
    match = MOUNT.fullmatch(text)
    if match is None:
        raise InvalidConfig(
            f"mounts: {text!r} is no mount",
            hint="write CLAIM:/path, secret/NAME:/path, or /path for a folder that every node has",
        )
    secret, name, path, ro = match.groups()
    name = name or ""
    kept = Mount(str(PurePosixPath(path)), read_only=ro == ":ro")
    return replace(kept, secret=name) if secret else replace(kept, claim=name)


def check_volume(job: Job, text: str, mounts: Sequence[Mount], *, own: bool) -> None:
    """Refuse a volume that a job may not name, or that hides one of `mounts`.

    Claims and secrets of a namespace that is not the tenant's `own` may be another's, and those of
    the service: its log and its tokens.
    """
    if text.startswith("/"):
        raise InvalidConfig(
            f"job {job.id!r}: the volume {text!r} is a folder of nodes, which pods do not see",
            hint="name a claim, CLAIM:/inside, or let `weft serve` mount the folder: "
            "--engine kubernetes:mounts=/path",
        )
    if not own:
        raise InvalidConfig(
            f"job {job.id!r}: the volume {text!r} is of a namespace that tenants share",
            hint="give the tenant its own: --engine kubernetes:tenants=FILE",
        )
    path = read_mount(text).path
    if hidden := [mount.path for mount in mounts if PurePosixPath(mount.path).is_relative_to(path)]:
        raise InvalidConfig(
            f"job {job.id!r}: the volume {text!r} would hide {hidden[0]}",
            hint="mount it at another path",
        )


def mounts_of(gang: Gang, site: PodSettings) -> tuple[Mount, ...]:
    """The mounts that all pods see, and those that this job asks for besides."""
    return (*site.mounts, *map(read_mount, gang.volumes))


def is_mounted(path: str | Path, mounts: Sequence[Mount]) -> bool:
    """True if pods see what is at `path` here."""
    return any(PurePosixPath(path).is_relative_to(mount.path) for mount in mounts)


def volume_met(path: Path, jobs: Path, mounts: Sequence[Mount]) -> str:
    """The path at which the volume with `jobs` is mounted, if a folder is on it too; else empty.

    There service and pods meet. At any other path pods may see what the service does not.
    """
    covers = [mount.path for mount in mounts if path.is_relative_to(mount.path)]
    meet = [mount.path for mount in mounts if jobs.is_relative_to(mount.path)]
    hidden = any(PurePosixPath(mount.path).is_relative_to(path) for mount in mounts)
    top = max(covers, key=len, default="")
    return "" if hidden or ".." in path.parts or top != max(meet, key=len, default="") else top


def job_label(key: Key) -> str:
    """The label of a job where only few characters are allowed."""
    return hashlib.sha256(key[0].encode()).hexdigest()[:16]


def selector(owner: str, key: Key | None = None) -> str:
    """The selector of the pods of a service, or of one attempt of it."""
    chosen = {OWNER: owner}
    if key is not None:
        chosen |= {JOB: job_label(key), ATTEMPT: str(key[1])}
    return ",".join(f"{name}={value}" for name, value in chosen.items())


def pod_name(site: PodSettings, gang: Gang, at: int) -> str:
    """The name of a pod: readable, equal whenever it is asked for, at most 63 characters."""
    slug = re.sub(r"[^a-z0-9]+", "-", gang.name.lower()).strip("-")[:LONGEST_SLUG].strip("-")
    digest = hashlib.sha256(f"{site.owner}/{gang.job}".encode()).hexdigest()[:10]
    return f"weft-{slug + '-' if slug else ''}{digest}-{gang.attempt}-{at}"


def pods_of(gang: Gang, site: PodSettings) -> list[Object]:
    """One pod for each part, each on its node, rank 0's first."""
    return [_pod(gang, site, at, part) for at, part in enumerate(gang.parts)]


def request_fairly(part: AttemptPart, node: Node | None) -> AttemptPart:
    """The request for a pod: of CPUs no more than its devices' part of its node.

    Requests stay as they are while a policy may divide the CPUs again: those of all pods must fit
    whatever it does. What a job has beyond is a matter of the cores that its agent binds it to.
    """
    if node is None or not part.gpus:
        return part
    return replace(part, cpus=min(part.cpus, node.cpus * len(part.gpus) / node.gpus))


def headless_service() -> Object:
    """Gives pods names that others in the cluster can resolve, before they are ready too."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "labels": {MANAGED_BY: "weft"}},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {MANAGED_BY: "weft"},
        },
    }


def key_of(pod: Object) -> Key | None:
    """The attempt that a pod belongs to; None if it is none of ours."""
    notes = pod["metadata"].get("annotations") or {}
    labels = pod["metadata"].get("labels") or {}
    job, attempt = notes.get(JOB), str(labels.get(ATTEMPT, ""))
    return (job, int(attempt)) if job and attempt.isdigit() else None


def _pod(gang: Gang, site: PodSettings, at: int, part: AttemptPart) -> Object:
    name = pod_name(site, gang, at)
    labels = {
        MANAGED_BY: "weft",
        OWNER: site.owner,
        JOB: job_label(gang.key),
        ATTEMPT: str(gang.attempt),
        PART: str(at),
    }
    notes = {
        JOB: gang.job,
        NAME: gang.name,
        "weft/tenant": gang.tenant,
        NODES: ",".join(other.node for other in gang.parts),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": notes},
        "spec": _spec(gang, site, part, name),
    }


def _spec(gang: Gang, site: PodSettings, part: AttemptPart, name: str) -> Object:
    host_network = site.address == "node"
    spec: Object = {
        "restartPolicy": "Never",
        "hostname": name,
        "subdomain": SERVICE,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": int(gang.grace_s) + SPARE_S,
        "tolerations": _tolerations(site),
        "containers": [_container(gang, site, part, name)],
        "volumes": [
            *(_volume(at, mount) for at, mount in enumerate(mounts_of(gang, site))),
            _shared_memory(),
        ],
    }
    if class_of(_device(site, part)) and part.gpus:
        template = template_name(_device(site, part), len(part.gpus))
        spec["resourceClaims"] = [{"name": REQUEST, "resourceClaimTemplateName": template}]
    if site.place == "name":
        spec["nodeName"] = part.node
    else:
        spec["nodeSelector"] = {"kubernetes.io/hostname": part.node}
    if host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if gang.time_limit_s:
        spec["activeDeadlineSeconds"] = int(gang.time_limit_s) + SPARE_S
    if site.account:
        spec["serviceAccountName"] = site.account
    if name := site.priority_classes.get(gang.priority, site.priority_classes.get("", "")):
        spec["priorityClassName"] = name
    if site.pull_secret:
        spec["imagePullSecrets"] = [{"name": site.pull_secret}]
    if site.uid:
        spec["securityContext"] = {
            "runAsUser": site.uid,
            "runAsGroup": site.gid,
            "fsGroup": site.gid,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    return spec


def _container(gang: Gang, site: PodSettings, part: AttemptPart, name: str) -> Object:
    container: Object = {
        "name": "agent",
        "image": gang.image or site.image,
        "command": [site.python, "-P", "-m", "weft.node.agent", str(part.folder)],
        "env": [
            _address(site, name),
            _field("NODE_NAME", "spec.nodeName"),
            _field(DOOR_ADDRESS, "status.podIP"),
            *({"name": key, "value": text} for key, text in site.env),
        ],
        "envFrom": [{"secretRef": {"name": name}} for name in site.secrets],
        "resources": _resources(site, part),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *(_seen(at, mount) for at, mount in enumerate(mounts_of(gang, site))),
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - what torch's loaders need
        ],
    }
    if site.uid:
        container["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    return container


def _address(site: PodSettings, name: str) -> Object:
    match site.address:
        case "service":
            return {"name": ADDRESS, "value": f"{name}.{SERVICE}.{site.namespace}.svc"}
        case "pod":
            return _field(ADDRESS, "status.podIP")
        case _:
            return _field(ADDRESS, "status.hostIP")


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(site: PodSettings, part: AttemptPart) -> Object:
    """Devices and memory are limits; CPUs a request, for agents bind ranks to their cores."""
    limits: dict[str, str] = {}
    if part.mem_gb:
        limits["memory"] = f"{max(round(part.mem_gb * 1024), 1)}Mi"
    device = _device(site, part)
    if part.gpus and device != "cpu" and not class_of(device):
        limits[device] = str(len(part.gpus))
    cpus = {"cpu": f"{max(int(part.cpus * 1000), 1)}m"} if part.cpus else {}
    claims = {"claims": [{"name": REQUEST}]} if part.gpus and class_of(device) else {}
    return {"limits": limits, "requests": {**limits, **cpus}, **claims}


def _device(site: PodSettings, part: AttemptPart) -> str:
    return part.device or site.devices[0]


def _tolerations(site: PodSettings) -> list[Object]:
    plugged = [device for device in site.devices if not class_of(device)]
    fine = [{"key": key, "operator": "Exists"} for key in (*plugged, *site.tolerate)]
    leave = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_NODE_S}
    return [*fine, *({"key": key, **leave} for key in LOST_NODE)]


def _volume(at: int, mount: Mount) -> Object:
    if mount.claim:
        return {"name": f"v{at}", "persistentVolumeClaim": {"claimName": mount.claim}}
    if mount.secret:
        return {"name": f"v{at}", "secret": {"secretName": mount.secret, "defaultMode": 0o440}}
    return {"name": f"v{at}", "hostPath": {"path": mount.path, "type": "Directory"}}


def _seen(at: int, mount: Mount) -> Object:
    seen = {"name": f"v{at}", "mountPath": mount.path}
    return {**seen, "readOnly": True} if mount.read_only else seen


def _shared_memory() -> Object:
    return {"name": "shm", "emptyDir": {"medium": "Memory"}}


def own_ids() -> tuple[int, int]:
    """The user and group that pods must run as to share files with this process."""
    return os.getuid(), os.getgid()
