"""What kubelets refuse says how many GPUs others have."""

from __future__ import annotations

import pytest

from weft.core.model.job import NodeId
from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.sightings import REFUSED_S, Refusals

GPU = "nvidia.com/gpu"
N1 = NodeId("n1")


def pod(uid: str, gpus: int, phase: str, reason: str = "") -> Object:
    limits = {GPU: str(gpus), "memory": "1Gi"}
    spec = {"nodeName": N1, "containers": [{"resources": {"limits": limits}}]}
    return {"metadata": {"uid": uid}, "spec": spec, "status": {"phase": phase, "reason": reason}}


@pytest.mark.parametrize("reason", [f"OutOf{GPU}", "UnexpectedAdmissionError"])
@pytest.mark.parametrize(
    ("ours", "asked", "taken"), [(0, 8, 1), (0, 1, 8), (6, 2, 1), (6, 1, 2), (8, 1, 1)]
)
def test_a_refusal_says_how_many_are_not_free(
    reason: str, ours: int, asked: int, taken: int
) -> None:
    it = Refusals()
    pods = [pod("r", asked, "Failed", reason)]
    pods += [pod(f"o{at}", 1, "Running") for at in range(ours)]

    it.note(pods, {N1: 8}, 100.0)

    assert it.taken(N1, 100.0) == taken
    assert it.taken(NodeId("n2"), 100.0) == 0


def test_a_refusal_is_believed_once_and_for_a_while() -> None:
    it, pods = Refusals(), [pod("r", 8, "Failed", f"OutOf{GPU}")]

    it.note(pods, {N1: 8}, 0.0)
    it.note(pods, {N1: 8}, REFUSED_S - 1)  # its pod is still there

    assert it.taken(N1, REFUSED_S - 1) == 1
    assert it.taken(N1, REFUSED_S) == 0


@pytest.mark.parametrize("reason", ["", "OutOfcpu", "Evicted", "OutOfamd.com/gpu"])
def test_other_ends_say_nothing_of_gpus(reason: str) -> None:
    it = Refusals()

    it.note([pod("r", 8, "Failed", reason)], {N1: 8}, 0.0)

    assert it.taken(N1, 0.0) == 0
