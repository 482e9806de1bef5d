"""From the pods of an attempt to what happened to it, and whose GPUs kubelets refuse: pure.

The service may read no pods but its own. Where a kubelet has no device left for one of these,
someone else has them, and the node is used for less until that may have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from weft.core.model.job import NodeId
from weft.engines.fleet.port import AttemptObservation, AttemptPhase
from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.pods import NODES, PART

SIGNALLED = 128  # an exit code above it is a signal's
# Why a pod ended that is no doing of its own; kubelets add OutOfcpu, OutOfnvidia.com/gpu, ...
TAKEN = (
    *("Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting"),
    *("NodeAffinity", "UnexpectedAdmissionError", "TopologyAffinityError"),
)
# Why a container waits that waiting does not change.
HOPELESS = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
UNPULLED = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError")


class PodState(StrEnum):
    """The phase of one pod."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    TAKEN = "taken"  # ended by someone else: evicted, refused by its kubelet
    LOST = "lost"  # on a node that is gone: whether its processes run is unknown


class PodSeen(NamedTuple):
    """One pod, in a word and in words."""

    state: PodState
    node: NodeId
    reason: str = ""
    code: int | None = None


def seen_of(
    pods: Sequence[Object], lost: Mapping[str, str], stuck: Collection[str] = ()
) -> AttemptObservation:
    """The state of the attempt with these pods; `lost` are nodes that are gone, and why.

    `stuck` names pods whose end was asked for long ago. A pod that is not there any more was ended
    by someone: the gang cannot go on without it.
    """
    each = [pod_seen(pod, lost, stuck) for pod in sorted(pods, key=_part)]
    by_state = {state: [seen for seen in each if seen.state is state] for state in PodState}
    gone = by_state[PodState.LOST]
    taken = [*by_state[PodState.TAKEN], *_missing(pods)]
    nodes = tuple(dict.fromkeys(seen.node for seen in (*gone, *taken)))
    if by_state[PodState.RUNNING] or (by_state[PodState.WAITING] and (gone or taken)):
        return AttemptObservation(AttemptPhase.RUNNING, _why(gone or taken), nodes=nodes)
    if by_state[PodState.WAITING]:
        return AttemptObservation(AttemptPhase.PENDING, _why(by_state[PodState.WAITING]))
    if gone or taken:
        return AttemptObservation(AttemptPhase.LOST, _why(gone or taken), nodes=nodes)
    ended = by_state[PodState.ENDED]
    failed = [seen for seen in ended if seen.code] or ended
    return AttemptObservation(
        AttemptPhase.ENDED, _why(failed), code=failed[0].code if failed else None
    )


def pod_seen(pod: Object, lost: Mapping[str, str], stuck: Collection[str] = ()) -> PodSeen:
    """The state that one pod's object tells."""
    name, status = str(pod["metadata"]["name"]), pod.get("status") or {}
    node, phase = NodeId(node_of(pod)), str(status.get("phase", "Pending"))
    if is_over(pod):
        reason = str(status.get("reason", ""))
        if reason in TAKEN or reason.startswith("OutOf"):
            message = status.get("message") or reason
            return PodSeen(
                PodState.TAKEN, node, f"its pod on {node} was refused or ended: {message}"
            )
        return _ended(status, node)
    if node in lost:
        return PodSeen(PodState.LOST, node, f"node {node}: {lost[node]}")
    if name in stuck:
        return PodSeen(PodState.LOST, node, f"node {node} does not end its pod")
    if phase == "Running":
        return PodSeen(PodState.RUNNING, node)
    return PodSeen(PodState.WAITING, node, waiting_for(pod))


def waiting_for(pod: Object) -> str:
    """The reason why a pod has not begun, in the words of the kubelet or the scheduler."""
    status = pod.get("status") or {}
    for condition in status.get("containerStatuses") or ():
        waiting = (condition.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return _joined(waiting)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _joined(condition)
    return f"node {node_of(pod)} has not begun it"


def why_hopeless(pod: Object) -> tuple[str, bool]:
    """The reason why its container cannot be made, and whether that is certain; empty if it can."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in (*HOPELESS, *UNPULLED):
            return _joined(waiting), waiting["reason"] in HOPELESS
    return "", False


def is_over(pod: Object) -> bool:
    """True if its processes have ended, as its kubelet says."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def created_at(pod: Object) -> float:
    """The time at which the server took it, by its clock."""
    return datetime.fromisoformat(str(pod["metadata"]["creationTimestamp"])).timestamp()


def ended_at(pod: Object) -> float | None:
    """The time at which its container ended, by the node's clock; None where unknown."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("finishedAt"):
            return datetime.fromisoformat(str(ended["finishedAt"])).timestamp()
    return None


def _ended(status: Object, node: NodeId) -> PodSeen:
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            code = int(ended.get("exitCode", 0))
            code = SIGNALLED - code if code > SIGNALLED else code
            reason = "" if code == 0 else _joined(ended)
            reason += ": more memory than its limit" if ended.get("reason") == "OOMKilled" else ""
            return PodSeen(PodState.ENDED, node, reason, code or None)
    return PodSeen(PodState.ENDED, node, str(status.get("message") or status.get("reason") or ""))


def _missing(pods: Sequence[Object]) -> list[PodSeen]:
    """Parts that the gang once had and that are gone."""
    if not pods:
        return []
    notes = pods[0]["metadata"].get("annotations") or {}
    nodes = str(notes.get(NODES, "")).split(",")
    there = {_part(pod) for pod in pods}
    return [
        PodSeen(PodState.TAKEN, NodeId(node), f"its pod on {node} was deleted")
        for at, node in enumerate(nodes)
        if at not in there and node
    ]


def _part(pod: Object) -> int:
    return int(pod["metadata"]["labels"][PART])


def node_of(pod: Object) -> str:
    """The node where it is, or is to be."""
    spec = pod["spec"]
    chosen = (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname", "")
    return str(spec.get("nodeName") or chosen)


def _joined(condition: Object) -> str:
    parts = (str(condition.get("reason", "")), str(condition.get("message", "")).strip())
    return ": ".join(filter(None, parts))


def _why(some: Sequence[PodSeen]) -> str:
    return next((seen.reason for seen in some if seen.reason), "")


REFUSED_S = 60.0  # how long a refusal is believed
NO_DEVICE = "UnexpectedAdmissionError"  # the device plug-in's; OutOf... is the kubelet's own count


class Refusals:
    """The number of GPUs of each node that others have at least."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._taken: dict[NodeId, tuple[int, float]] = {}

    def note(self, pods: Collection[Object], gpus: Mapping[NodeId, int], now: float) -> None:
        """Read all pods of ours; `gpus` are what each node has."""
        held: Counter[NodeId] = Counter()
        for pod in pods:
            if not is_over(pod):
                held[NodeId(node_of(pod))] += _gpus_of(pod)
        refused = {str(pod["metadata"]["uid"]): pod for pod in pods if _is_refused(pod)}
        for uid in refused.keys() - self._known:
            node = NodeId(node_of(refused[uid]))
            left = gpus.get(node, 0) - held[node]  # less than it asked for is free of these
            self._taken[node] = (max(left - _gpus_of(refused[uid]) + 1, 1), now + REFUSED_S)
        self._known = {*refused}

    def taken(self, node: NodeId, now: float) -> int:
        """Of its GPUs, those that are not to be counted on."""
        taken, until = self._taken.get(node, (0, 0.0))
        return taken if now < until else 0


def _is_refused(pod: Object) -> bool:
    reason = str((pod.get("status") or {}).get("reason", ""))
    devices = any(reason == f"OutOf{name}" for name in _limits_of(pod))
    return is_over(pod) and (devices or reason == NO_DEVICE)


def _gpus_of(pod: Object) -> int:
    return sum(int(count) for count in _limits_of(pod).values())


def _limits_of(pod: Object) -> dict[str, str]:
    """Its devices: of resources, those with a maker's name."""
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return {name: str(count) for name, count in limits.items() if "/" in name}
