"""From the pods of an attempt to what happened to it: pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from weft.core.model.job import NodeId
from weft.engines.fleet.port import Observation, Phase
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
    """How far one pod is."""

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
) -> Observation:
    """What happened to the attempt with these pods; `lost` are nodes that are gone, and why.

    `stuck` names pods whose end was asked for long ago. A pod that is not there any more was ended
    by someone: the gang cannot go on without it.
    """
    each = [pod_seen(pod, lost, stuck) for pod in sorted(pods, key=_part)]
    by_state = {state: [seen for seen in each if seen.state is state] for state in PodState}
    gone = by_state[PodState.LOST]
    taken = [*by_state[PodState.TAKEN], *_missing(pods)]
    nodes = tuple(dict.fromkeys(seen.node for seen in (*gone, *taken)))
    if by_state[PodState.RUNNING] or (by_state[PodState.WAITING] and (gone or taken)):
        return Observation(Phase.RUNNING, _why(gone or taken), nodes=nodes)
    if by_state[PodState.WAITING]:
        return Observation(Phase.PENDING, _why(by_state[PodState.WAITING]))
    if gone or taken:
        return Observation(Phase.LOST, _why(gone or taken), nodes=nodes)
    ended = by_state[PodState.ENDED]
    failed = [seen for seen in ended if seen.code] or ended
    return Observation(Phase.ENDED, _why(failed), code=failed[0].code if failed else None)


def pod_seen(pod: Object, lost: Mapping[str, str], stuck: Collection[str] = ()) -> PodSeen:
    """What one pod's object says."""
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
    """Why a pod has not begun, in the words of the kubelet or the scheduler."""
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
    """Why its container cannot be made, and whether that is certain; empty if it can."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in (*HOPELESS, *UNPULLED):
            return _joined(waiting), waiting["reason"] in HOPELESS
    return "", False


def is_over(pod: Object) -> bool:
    """Whether its processes have ended, as its kubelet says."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def created_at(pod: Object) -> float:
    """When the server took it, by its clock."""
    return datetime.fromisoformat(str(pod["metadata"]["creationTimestamp"])).timestamp()


def ended_at(pod: Object) -> float | None:
    """When its container ended, by the node's clock; None where unknown."""
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
    """Where it is, or is to be."""
    spec = pod["spec"]
    chosen = (spec.get("nodeSelector") or {}).get("kubernetes.io/hostname", "")
    return str(spec.get("nodeName") or chosen)


def _joined(condition: Object) -> str:
    parts = (str(condition.get("reason", "")), str(condition.get("message", "")).strip())
    return ": ".join(filter(None, parts))


def _why(some: Sequence[PodSeen]) -> str:
    return next((seen.reason for seen in some if seen.reason), "")
