"""GPUs that pods of others hold, as far as kubelets say by refusing ours: pure.

The service may read no pods but its own. Where a kubelet has no device left for one of these,
someone else has them, and the node is used for less until that may have changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from weft.core.model.job import NodeId
from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.sightings import is_over, node_of

REFUSED_S = 60.0  # how long a refusal is believed
NO_DEVICE = "UnexpectedAdmissionError"  # the device plug-in's; OutOf... is the kubelet's own count


class Refusals:
    """How many GPUs of each node others have at least."""

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
