"""Our client against the real API server: rights, watches, refusals, restarts."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.clusters.kubernetes import DEPLOY, KubernetesCluster, release, wait_until
from tests.house.test_helm_chart import FULL, objects
from tests.waiting import LIMIT_S
from weft.core.errors import EngineError
from weft.core.model.job import JobId, NodeId
from weft.engines.fleet.port import AttemptPart, AttemptPhase, ControllerUnreachable, Gang
from weft.engines.kubernetes.access import read_kubeconfig
from weft.engines.kubernetes.api import FORBIDDEN, Api, ApiError, Watching
from weft.engines.kubernetes.cluster import KubernetesCluster as Manager
from weft.engines.kubernetes.cluster import NodeReader
from weft.engines.kubernetes.pods import Mount, PodSettings

pytestmark = pytest.mark.slow
OWNER = "0123456789ab"
BUDGETS = 21  # the release from which on policy/v1 has PodDisruptionBudgets
PODS = "/api/v1/namespaces/weft/pods"
WEFT = {"component": "weft"}


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """Stands in for Python: waits for as long as the last part of the folder's name says."""
    path = tmp_path / "agent"
    path.write_text("#!/bin/sh\nexec sleep ${4##*/}\n")
    path.chmod(0o755)
    yield path


def manager(
    cluster: KubernetesCluster,
    script: Path,
    nodes: Path | None = None,
    classes: dict[str, str] | None = None,
) -> Manager:
    access = read_kubeconfig(cluster.kubeconfig)
    site = PodSettings("", access.namespace, "none", python=str(script), mounts=(Mount("/tmp"),))
    site = replace(site, priority_classes=classes or {})
    return Manager(Api(access), site, NodeReader(file=nodes))


def gang(job: str, seconds: float, *nodes: str, gpus: int = 1) -> Gang:
    parts = [
        AttemptPart(NodeId(node), tuple(range(gpus)), 1.0, 1.0, Path(f"/tmp/{seconds}"))
        for node in nodes
    ]
    return Gang(JobId(job), 1, job, "t", tuple(parts))


async def end(it: Manager, some: Gang) -> None:
    await it.cancel(some.key)
    await until(it, some.key, None)
    await it.close()


async def until(it: Manager, key: tuple[JobId, int], phase: AttemptPhase | None) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            seen = (await it.poll()).get(key)
            if (seen.phase if seen else None) is phase:
                return
            await asyncio.sleep(0.05)


def watch_from_too_early(cluster: KubernetesCluster) -> None:
    """A server that was restarted has forgotten early versions: all must be listed again."""
    watching = Watching(cluster.api, "/api/v1/nodes")
    watching._version, watching._trouble = "1", None
    watching._thread.start()
    try:
        wait_until(lambda: watching.relists == 1, "all is listed again")
        assert set(watching.objects()) == {"a1", "t1", "t2"}
    finally:
        watching.stop()


def test_the_deploy_files_are_what_the_server_takes(kubernetes: KubernetesCluster) -> None:
    files = [path for path in sorted(DEPLOY.iterdir()) if path.name != "tenant.yaml"]
    named = [word for path in files for word in ("-f", str(path))]

    printed = kubernetes.kubectl("apply", "--dry-run=server", *named)

    assert "deployment.apps/weft created (server dry run)" in printed


def test_the_chart_is_what_the_server_takes(kubernetes: KubernetesCluster, tmp_path: Path) -> None:
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("ml", "vision")
    ]
    budgets = {"readNodes": True, "disruptionBudget": release() >= BUDGETS}
    made = objects({**FULL, **budgets}, tmp_path)
    for name, some in (("spaces.yaml", spaces), ("all.yaml", made.values())):
        (tmp_path / name).write_text(yaml.safe_dump_all(some))
    kubernetes.kubectl("apply", "-f", str(tmp_path / "spaces.yaml"))

    printed = kubernetes.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "all.yaml"))

    assert printed.count("(server dry run)") == len(made)


def test_the_service_has_the_rights_of_its_namespace_and_no_others(
    kubernetes: KubernetesCluster,
) -> None:
    with closing(Api(read_kubeconfig(kubernetes.kubeconfig))) as api:
        assert api.get("/api/v1/nodes")["items"]

        for path in ("/api/v1/pods", "/api/v1/namespaces/kube-system/pods", f"{PODS}/x/log"):
            with pytest.raises(ApiError, match=r"(?s)cannot.*rbac\.yaml") as refused:
                api.get(path)
            assert refused.value.code == FORBIDDEN


def test_a_gang_is_made_seen_and_ended(kubernetes: KubernetesCluster, script: Path) -> None:
    async def scenario() -> None:
        it, some = manager(kubernetes, script), gang("net", 1000, "a1", "t1")
        await it.open(OWNER)
        await it.submit(some)
        await it.submit(some)
        await until(it, some.key, AttemptPhase.RUNNING)
        assert len(kubernetes.api.get(PODS)["items"]) == 2

        await it.cancel(some.key)
        await end(it, some)

    asyncio.run(scenario())


def test_pods_have_events_of_their_own_and_the_class_of_their_jobs_priority(
    kubernetes: KubernetesCluster, script: Path
) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in (("training", 7), ("scavenger", -7)):
        kubernetes.api.create(classes, {"metadata": {"name": name}, "value": value})

    async def scenario() -> dict[str, int]:
        it = manager(kubernetes, script, classes={"": "training", "spot": "scavenger"})
        await it.open(OWNER)
        for priority in ("normal", "spot"):
            some = replace(gang(priority, 1000, "a1"), priority=priority)
            await it.submit(some)
            await until(it, some.key, AttemptPhase.RUNNING)
        pods = kubernetes.api.get(PODS)["items"]
        for priority in ("normal", "spot"):
            await it.cancel((JobId(priority), 1))
            await until(it, (JobId(priority), 1), None)
        await it.close()
        return {pod["metadata"]["annotations"]["weft/job"]: pod["spec"]["priority"] for pod in pods}

    try:
        assert asyncio.run(scenario()) == {"normal": 7, "spot": -7}
    finally:
        for name in ("training", "scavenger"):
            kubernetes.api.delete(f"{classes}/{name}")
    listed = kubernetes.api.get("/api/v1/namespaces/weft/events")["items"]
    reasons = [(event["reason"], event["message"]) for event in listed if event["source"] == WEFT]
    assert ("Placed", "spot, attempt 1") in reasons
    assert ("Ended", "Weft ends attempt 1 of spot") in reasons


def test_of_a_gang_with_a_bad_part_no_pod_is_made(
    kubernetes: KubernetesCluster, script: Path
) -> None:
    async def scenario() -> None:
        it = manager(kubernetes, script)
        await it.open(OWNER)

        with pytest.raises(EngineError, match=r"spec\.nodeName: Invalid value: \"Not A Node\""):
            await it.submit(gang("bad", 1000, "a1", "Not A Node"))

        assert kubernetes.api.get(PODS)["items"] == []
        await it.close()

    asyncio.run(scenario())


def test_a_quota_is_told_with_where_to_look(kubernetes: KubernetesCluster, script: Path) -> None:
    quota = "/api/v1/namespaces/weft/resourcequotas"
    none = {"pods": "0"}
    kubernetes.api.create(quota, {"metadata": {"name": "few"}, "spec": {"hard": none}})
    kubernetes.api.merge(f"{quota}/few/status", {"status": {"hard": none, "used": none}})

    async def scenario() -> None:
        it = manager(kubernetes, script)
        await it.open(OWNER)
        with pytest.raises(EngineError, match=r"(?s)exceeded quota.*kubectl describe quota"):
            await it.submit(gang("many", 1000, "a1"))
        await it.close()

    try:
        asyncio.run(scenario())
    finally:
        kubernetes.api.delete(f"{quota}/few")


def test_a_kubelet_that_has_no_device_left_refuses_the_pod(
    kubernetes: KubernetesCluster, script: Path
) -> None:
    async def scenario() -> None:
        it, some = manager(kubernetes, script), gang("large", 1000, "a1", gpus=3)
        await it.open(OWNER)
        await it.submit(some)

        await until(it, some.key, AttemptPhase.LOST)

        assert "nvidia.com/gpu" in (await it.poll())[some.key].reason
        await end(it, some)

    asyncio.run(scenario())


def test_processes_outlive_their_kubelet_and_the_next_one_knows_them(
    kubernetes: KubernetesCluster, script: Path
) -> None:
    async def scenario() -> None:
        it, some = manager(kubernetes, script), gang("kept", 1000, "t2")
        await it.open(OWNER)
        await it.submit(some)
        await until(it, some.key, AttemptPhase.RUNNING)

        kubernetes.kill_kubelet("t2")
        kubernetes.start_node("t2")
        kubernetes.wait_for_nodes()

        assert (await it.poll())[some.key].phase is AttemptPhase.RUNNING
        await end(it, some)

    asyncio.run(scenario())


def test_without_the_right_to_read_nodes_their_list_can_be_given(
    kubernetes: KubernetesCluster, script: Path, tmp_path: Path
) -> None:
    kubernetes.kubectl("delete", "clusterrolebinding", "weft-reads-nodes")
    listed = tmp_path / "nodes.json"
    listed.write_text(kubernetes.kubectl("get", "nodes", "-o", "json"))

    async def scenario() -> None:
        with pytest.raises(EngineError, match=r"(?s)may not read the nodes.*nodes_file=FILE"):
            await manager(kubernetes, script).open(OWNER)
        it, some = manager(kubernetes, script, listed), gang("blind", 0, "a1")
        await it.open(OWNER)
        assert [node.node.id for node in await it.nodes()] == ["a1", "t1", "t2"]
        await it.submit(some)
        await until(it, some.key, AttemptPhase.ENDED)
        await it.cancel(some.key)
        await it.close()

    try:
        asyncio.run(scenario())
    finally:
        kubernetes.kubectl("apply", "-f", str(DEPLOY / "rbac.yaml"))


def test_while_the_server_is_away_nothing_is_known_and_nothing_is_lost(
    kubernetes: KubernetesCluster, script: Path
) -> None:
    async def scenario() -> None:
        it, ends = manager(kubernetes, script), gang("ends", 2, "a1")
        stays = gang("stays", 1000, "t2")
        await it.open(OWNER)
        await it.submit(ends)
        await it.submit(stays)
        await until(it, stays.key, AttemptPhase.RUNNING)

        kubernetes.stop_server()
        with pytest.raises(ControllerUnreachable, match="Kubernetes API at"):
            async with asyncio.timeout(LIMIT_S):
                while True:
                    await it.poll()
                    await asyncio.sleep(0.05)
        with pytest.raises(ControllerUnreachable):
            await it.submit(gang("late", 1, "a1"))
        await asyncio.to_thread(kubernetes.start_server)

        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    await until(it, ends.key, AttemptPhase.ENDED)
                    break
                except ControllerUnreachable:
                    await asyncio.sleep(0.1)
        assert (await it.poll())[stays.key].phase is AttemptPhase.RUNNING
        for some in (ends, stays):
            await it.cancel(some.key)
            await until(it, some.key, None)
        await it.close()
        await asyncio.to_thread(watch_from_too_early, kubernetes)

    asyncio.run(scenario())


def test_nothing_listens_but_on_loopback(kubernetes: KubernetesCluster) -> None:
    pids = [path.read_text() for path in (kubernetes.folder / "pids").iterdir()]

    listening = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout

    ours = [line for line in listening.splitlines() if any(f"pid={pid}," in line for pid in pids)]
    assert ours
    assert [line for line in ours if line.split()[3].rpartition(":")[0] != "127.0.0.1"] == []
