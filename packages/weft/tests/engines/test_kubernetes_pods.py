"""What is sent to Kubernetes, and what is read from it, as plain values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Job, JobId, NodeId
from weft.engines.fleet.port import AttemptPart, AttemptPhase, Gang, NodeHealth
from weft.engines.kubernetes.namespaces import read_classes
from weft.engines.kubernetes.nodes import (
    device_of,
    kind_in,
    machine_of,
    quantity,
    read_devices,
    read_nodes,
)
from weft.engines.kubernetes.pods import (
    Mount,
    PodSettings,
    check_volume,
    is_mounted,
    key_of,
    pods_of,
    read_mounts,
    request_fairly,
    volume_met,
)
from weft.engines.kubernetes.sightings import seen_of, why_hopeless

Object = dict[str, Any]
SITE = PodSettings(
    "0123456789ab", "weft", "example/weft:1", mounts=(Mount("/state/jobs", "weft-jobs"),)
)


def gang(*nodes: str, job: str = "Team/Net 1", gpus: int = 2) -> Gang:
    parts = [
        AttemptPart(NodeId(node), tuple(range(gpus)), 3.5, 8.0, Path(f"/state/jobs/n/1/{node}"))
        for node in nodes
    ]
    return Gang(JobId(job), 1, "Big Net!", "vision", tuple(parts), grace_s=30.0)


def pod(at: int = 0, phase: str = "Running", **status: Any) -> Object:
    made = pods_of(gang("a", "b"), SITE)[at]
    return {**made, "status": {"phase": phase, **status}}


def ended(code: int, at: int = 0) -> Object:
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    phase = "Failed" if code else "Succeeded"
    return pod(at, phase, containerStatuses=[{"state": state}])


def node(name: str = "a", ready: str = "True", **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}},
        "spec": spec,
        "status": {
            "allocatable": {"nvidia.com/gpu": "4", "cpu": "31850m", "memory": "128Gi"},
            "conditions": [{"type": "Ready", "status": ready, "message": "stopped posting"}],
        },
    }


def test_a_pod_is_bound_to_its_node_with_the_devices_and_host_of_its_part() -> None:
    first, two = pods_of(gang("a", "b"), SITE)

    assert (first["spec"]["nodeName"], two["spec"]["nodeName"]) == ("a", "b")
    asked = first["spec"]["containers"][0]["resources"]
    assert asked["limits"] == {"memory": "8192Mi", "nvidia.com/gpu": "2"}
    assert asked["requests"] == {"cpu": "3500m", **asked["limits"]}
    assert first["spec"]["containers"][0]["command"][-1] == "/state/jobs/n/1/a"
    assert first["spec"]["restartPolicy"] == "Never"


def test_the_cpus_that_pods_request_fit_whatever_a_policy_gives_to_others() -> None:
    (part,) = gang("a").parts
    machine = Node(NodeId("a"), "a100", 4, cpus=6.0)

    assert request_fairly(part, machine).cpus == 3.0
    assert request_fairly(replace(part, cpus=1.0), machine).cpus == 1.0
    assert request_fairly(replace(part, gpus=()), machine).cpus == 3.5


def test_with_a_selector_the_scheduler_of_the_cluster_has_one_node_to_choose() -> None:
    (made,) = pods_of(gang("a"), replace(SITE, place="selector"))

    assert "nodeName" not in made["spec"]
    assert made["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "a"}


def test_every_pod_has_a_name_by_which_others_find_it() -> None:
    first, two = pods_of(gang("a", "b"), SITE)

    for each in (first, two):
        name = each["metadata"]["name"]
        assert each["spec"]["hostname"] == name
        assert len(name) <= 63
        address = each["spec"]["containers"][0]["env"][0]
        assert address["value"] == f"{name}.weft-jobs.weft.svc"
    assert first["metadata"]["name"] != two["metadata"]["name"]


def test_names_are_the_same_each_time_and_differ_between_services_and_jobs() -> None:
    def name(job: str, owner: str) -> str:
        made = pods_of(gang("a", job=job), replace(SITE, owner=owner))
        return str(made[0]["metadata"]["name"])

    assert name("x", "0" * 12) == name("x", "0" * 12)
    assert len({name("x", "0" * 12), name("y", "0" * 12), name("x", "1" * 12)}) == 3


def test_the_attempt_of_a_pod_is_read_from_its_marks_alone() -> None:
    (made,) = pods_of(gang("a"), SITE)

    assert key_of(made) == ("Team/Net 1", 1)
    assert key_of({"metadata": {"name": "somebody-elses"}}) is None


def test_a_service_without_root_asks_for_no_more_than_restricted_pods_may_have() -> None:
    (made,) = pods_of(gang("a"), replace(SITE, uid=1000, gid=1000))

    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    container = made["spec"]["containers"][0]["securityContext"]
    assert container == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_mounts_are_claims_or_folders_of_the_nodes() -> None:
    text = "weft-jobs:/state/jobs+/nfs/home+secret/ssh:/etc/ssh-key+data:/data:ro"
    files = read_mounts(text, Path("/state"))[2:]
    assert files == (Mount("/etc/ssh-key", secret="ssh"), Mount("/data", "data", read_only=True))
    mounts = read_mounts("weft-jobs:/state/jobs+/nfs/home", Path("/state"))

    assert mounts == (Mount("/state/jobs", "weft-jobs"), Mount("/nfs/home"))
    assert is_mounted("/nfs/home/ann/net", mounts)
    assert not is_mounted("/nfs/homes", mounts)
    with pytest.raises(InvalidConfig, match="is no mount"):
        read_mounts("data", Path("/state"))


@pytest.mark.parametrize(
    ("text", "number"), [("250m", 0.25), ("16Gi", 2.0**34), ("2k", 2000.0), ("1e3", 1000.0)]
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, number: float) -> None:
    assert quantity(text) == number


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'16 GB' is not a quantity"):
        quantity("16 GB")


def test_a_node_is_known_by_its_labels_and_by_what_it_can_give() -> None:
    machine = machine_of(node(), keep_cpus=1.85, keep_mem_gb=28.0)

    assert machine is not None
    assert (machine.node.kind, machine.node.gpus) == ("a100", 4)
    assert (machine.node.cpus, machine.node.mem_gb) == (30.0, 100.0)
    assert machine.health is NodeHealth.UP


def test_a_node_without_devices_is_none_of_ours() -> None:
    plain = node()
    del plain["status"]["allocatable"]["nvidia.com/gpu"]

    assert machine_of(plain) is None


@pytest.mark.parametrize(
    ("given", "health", "why"),
    [
        (node(ready="Unknown"), NodeHealth.DOWN, "stopped posting"),
        (node(ready="False"), NodeHealth.DOWN, "not ready"),
        (node(unschedulable=True), NodeHealth.DRAINING, "cordoned"),
        (
            node(taints=[{"key": "mine", "effect": "NoSchedule"}]),
            NodeHealth.DRAINING,
            "tainted mine",
        ),
        (node(taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]), NodeHealth.UP, ""),
        (node(taints=[{"key": "soft", "effect": "PreferNoSchedule"}]), NodeHealth.UP, ""),
    ],
)
def test_a_node_in_trouble_says_why(given: Object, health: NodeHealth, why: str) -> None:
    machine = machine_of(given)

    assert machine is not None
    assert machine.health is health
    assert why in machine.reason


def test_nodes_may_be_read_from_what_kubectl_printed(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("apiVersion: v1\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n")

    assert [node["metadata"]["name"] for node in read_nodes(path)] == ["a", "b"]
    path.write_text("[1, 2]")
    with pytest.raises(InvalidConfig, match="is not a list of nodes"):
        read_nodes(path)


def test_a_gang_runs_while_any_pod_does_and_has_ended_when_all_have() -> None:
    assert seen_of([pod(0, "Pending"), pod(1, "Pending")], {}).phase is AttemptPhase.PENDING
    assert seen_of([pod(0), pod(1, "Pending")], {}).phase is AttemptPhase.RUNNING
    assert seen_of([ended(0), pod(1)], {}).phase is AttemptPhase.RUNNING
    assert seen_of([ended(0), ended(0, 1)], {}).phase is AttemptPhase.ENDED


def test_codes_above_128_are_signals() -> None:
    assert seen_of([ended(0), ended(137, 1)], {}).code == -9
    assert seen_of([ended(3), ended(0, 1)], {}).code == 3


def test_a_gang_whose_node_is_gone_is_lost_once_nothing_else_of_it_runs() -> None:
    half = seen_of([pod(0), pod(1)], {"b": "not ready: stopped posting"})
    rest = seen_of([ended(0), pod(1)], {"b": "not ready: stopped posting"})

    assert (half.phase, half.nodes) == (AttemptPhase.RUNNING, ("b",))
    assert (rest.phase, rest.nodes) == (AttemptPhase.LOST, ("b",))
    assert "stopped posting" in rest.reason


def test_a_pod_that_a_kubelet_refused_or_somebody_deleted_takes_the_gang_with_it() -> None:
    refused = pod(1, "Failed", reason="OutOfnvidia.com/gpu", message="no GPU left")

    assert "no GPU left" in seen_of([ended(0), refused], {}).reason
    assert seen_of([ended(0), refused], {}).phase is AttemptPhase.LOST
    gone = seen_of([pod(0)], {})
    assert (gone.phase, gone.nodes) == (AttemptPhase.RUNNING, ("b",))
    assert gone.reason == "its pod on b was deleted"


def test_a_pod_that_does_not_go_is_on_a_node_that_is_gone() -> None:
    leaving = pod(1)

    seen = seen_of([ended(0), leaving], {}, {leaving["metadata"]["name"]})

    assert (seen.phase, seen.nodes) == (AttemptPhase.LOST, ("b",))


def test_why_a_pod_waits_is_told_in_the_words_of_its_kubelet() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image x"}}
    pending = pod(0, "Pending", containerStatuses=[{"state": waiting}])

    assert seen_of([pending, pod(1, "Pending")], {}).reason == "ImagePullBackOff: no such image x"
    assert why_hopeless(pending) == ("ImagePullBackOff: no such image x", False)


def test_a_jobs_own_volumes_are_mounted_beside_those_of_all() -> None:
    asked = replace(gang("a"), volumes=("corpora:/data:ro", "secret/ssh:/etc/ssh-key"))

    (made,) = pods_of(asked, SITE)

    claims = [volume.get("persistentVolumeClaim") for volume in made["spec"]["volumes"]]
    assert claims[:2] == [{"claimName": "weft-jobs"}, {"claimName": "corpora"}]
    assert made["spec"]["volumes"][2]["secret"]["secretName"] == "ssh"
    seen = made["spec"]["containers"][0]["volumeMounts"]
    assert seen[1] == {"name": "v1", "mountPath": "/data", "readOnly": True}
    assert seen[2]["mountPath"] == "/etc/ssh-key"


@pytest.mark.parametrize(
    ("volume", "own", "message"),
    [
        ("/data:/data", True, "folder of nodes"),
        ("weft-state:/steal", False, "namespace that tenants share"),
        ("corpora:/state", True, "would hide /state/jobs"),
    ],
)
def test_a_volume_that_a_job_may_not_name_is_refused(volume: str, own: bool, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check_volume(Job(JobId("j")), volume, SITE.mounts, own=own)


def test_slices_of_a_gpu_are_a_kind_of_their_own() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}
    product = "NVIDIA-H100-80GB-HBM3"

    assert kind_in(labels) == "a100-1g.5gb"  # all slices alike, called GPUs
    assert kind_in({"nvidia.com/gpu.product": product}, "nvidia.com/mig-2g.20gb") == "h100-2g.20gb"
    assert kind_in({"nvidia.com/gpu.product": product}) == "h100"


def test_a_node_has_the_first_device_that_it_holds_and_pods_ask_for_that() -> None:
    devices = read_devices("nvidia.com/gpu+nvidia.com/mig-1g.10gb")
    sliced = node("s")
    sliced["metadata"]["labels"] |= {"nvidia.com/mig-1g.10gb.memory": "9856", "site/rack": "r7"}
    sliced["status"]["allocatable"] = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}

    assert [device_of(given, devices) for given in (node("a"), sliced)] == [*devices]
    seen = machine_of(sliced, device=devices[1], rack_label="site/rack")
    assert seen is not None
    assert (seen.node.kind, seen.node.gpus, seen.node.rack) == ("a100-1g.10gb", 7, "r7")
    assert seen.node.gpu_mem_gb == pytest.approx(9.6, abs=0.1)
    part = replace(gang("s").parts[0], device=devices[1])
    (made,) = pods_of(replace(gang("s"), parts=(part,)), replace(SITE, devices=devices))
    assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == "2"
    assert {toleration["key"] for toleration in made["spec"]["tolerations"]} > set(devices)


def test_another_label_may_say_of_which_kind_gpus_are() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "site/gpu": "a100-80"}

    assert kind_in(labels, kind_label="site/gpu") == "a100"
    assert kind_in({**labels, "site/gpu": "mi300x"}, kind_label="site/gpu") == "mi300x"


def test_the_priority_class_of_a_pod_follows_from_the_priority_of_its_job() -> None:
    site = replace(SITE, priority_classes=read_classes("training+spot:scavenger"))

    def class_of(priority: str, at: PodSettings = site) -> str | None:
        (made,) = pods_of(replace(gang("a"), priority=priority), at)
        name: str | None = made["spec"].get("priorityClassName")
        return name

    assert (class_of("normal"), class_of("spot")) == ("training", "scavenger")
    some = replace(SITE, priority_classes=read_classes("guaranteed:urgent"))
    assert (class_of("guaranteed", some), class_of("normal", some)) == ("urgent", None)


@pytest.mark.parametrize("text", ["urgent:high", "a+b", "spot:a+spot:b", "Training", "spot:"])
def test_priority_classes_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="priority_class has"):
        read_classes(text)


@pytest.mark.parametrize(
    ("path", "mounts", "met"),
    [
        ("/state/jobs/out", "", "/state/jobs"),
        ("/state/jobs/../log", "", ""),
        ("/nfs/me/out", "/nfs", ""),
        ("/nfs/me/out", "/nfs+weft-jobs:/state", ""),
        ("/state/me/out", "share:/state", "/state"),
        ("/state/me/out", "share:/state+mine:/state/me", ""),
        ("/state/me/out", "share:/state+mine:/state/me/out", ""),
        ("/state/me/out", "share:/state+mine:/state/me/out/best", ""),
        ("/state/other/out", "share:/state+mine:/state/me", "/state"),
        ("/state/me/out", "share:/state+jobs:/state/jobs", ""),
    ],
)
def test_files_are_seen_on_the_volume_where_pods_and_service_meet(
    path: str, mounts: str, met: str
) -> None:
    state = Path("/state")

    assert volume_met(Path(path), state / "jobs", read_mounts(mounts, state)) == met
