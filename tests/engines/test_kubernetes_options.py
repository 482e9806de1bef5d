"""Options of the Kubernetes engine at work: what a real API server and its nodes make of them."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.kubernetes import DEPLOY, KubernetesCluster, NodeSpec, what_is_missing
from weft.app.engine import build_engine
from weft.core.errors import EngineError
from weft.core.events.event import Finished, Started, StartFailed
from weft.core.spec.part_spec import PartSpec
from weft.engines.kubernetes.api import Object
from weft.testing.engine_subject import session, shell_job, shell_subject

pytestmark = pytest.mark.slow
SPACE = "ml"
SLOW = "site/slow"
# Rank 0 listens at the address that ranks are given, and keeps what rank 1 sends there.
MEETS = """import os, socket, sys
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(at) as server, open(sys.argv[1], "w") as file:
        file.write(at[0] + " " + server.accept()[0].recv(100).decode())
else:
    while True:
        try:
            with socket.create_connection(at) as there:
                there.sendall(os.environ["WANDB_API_KEY"].encode())
                break
        except ConnectionRefusedError:
            pass
"""


@pytest.fixture(scope="module")
def site() -> Iterator[KubernetesCluster]:
    """Nodes with addresses of their own, of which one is another team's and two are tainted."""
    if missing := what_is_missing():
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(prefix="weft-k8s-"))
    nodes = [NodeSpec(f"n{number}", address=f"127.0.0.{number}") for number in (2, 3, 4)]
    cluster = KubernetesCluster(folder, nodes, checks_accounts=True)
    try:
        cluster.up()
        prepare(cluster)
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


def prepare(cluster: KubernetesCluster) -> None:
    """What an administrator makes: a namespace that the service may use, and all that is named."""
    role = [
        {**each, "metadata": {"name": "weft", "namespace": SPACE}}
        for each in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text())
        if each["kind"] in ("Role", "RoleBinding")
    ]
    (cluster.folder / "role.yaml").write_text(yaml.safe_dump_all(role))
    cluster.kubectl("create", "namespace", SPACE)
    cluster.kubectl("apply", "-f", str(cluster.folder / "role.yaml"))
    for account in ("default", "trainer"):
        cluster.kubectl("-n", SPACE, "create", "serviceaccount", account)
    key = "--from-literal=WANDB_API_KEY=of-ml"
    cluster.kubectl("-n", SPACE, "create", "secret", "generic", "wandb", key)
    for name, value in (("training", "1000"), ("scavenger", "-10")):
        cluster.kubectl("create", "priorityclass", name, f"--value={value}")
    cluster.kubectl("label", "nodes", "n2", "n3", "pool=weft")
    cluster.kubectl("taint", "nodes", "n2", "n3", f"{SLOW}=:NoExecute")


@pytest.fixture
def kubeconfig(site: KubernetesCluster, tmp_path: Path) -> Path:
    """One whose current context leads nowhere."""
    body = json.loads(site.kubeconfig.read_text())
    nowhere = {"server": "https://127.0.0.1:9"}
    body["clusters"].append({"name": "nowhere", "cluster": nowhere})
    body["contexts"].append({"name": "nowhere", "context": {"cluster": "nowhere", "user": "test"}})
    body["current-context"] = "nowhere"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(body))
    path.chmod(0o600)
    return path


def kubernetes_options(kubeconfig: Path, **more: object) -> PartSpec:
    common = {"kubeconfig": str(kubeconfig), "image": "none", "mounts": "/"}
    here = {**common, "python": sys.executable, **more}
    return PartSpec("kubernetes", {"context": "test", "namespace": SPACE, **here})


def session_of(spec: PartSpec, state: Path) -> Any:
    return session(shell_subject(lambda: build_engine(spec, state=state)))


def test_a_gang_meets_on_the_nodes_network_with_all_that_its_pods_were_given(
    site: KubernetesCluster, kubeconfig: Path, tmp_path: Path
) -> None:
    spec = kubernetes_options(
        kubeconfig,
        address="node",
        labels="pool=weft+!broken",
        tolerate=SLOW,
        keep_cpus=2,
        keep_mem_gb=4,
        account="trainer",
        priority_class="training+spot:scavenger",
        secrets="wandb",
        pull_secret="registry",
    )
    script, wrote = tmp_path / "meets.py", tmp_path / "wrote"
    script.write_text(MEETS)
    job = shell_job("gang", 2, f"exec {sys.executable} {script} {wrote}")

    async def life() -> list[Object]:
        async with session_of(spec, tmp_path / "state") as it:
            nodes = await it.engine.nodes()
            assert {node.id: (node.cpus, node.mem_gb) for node in nodes} == {
                "n2": (6.0, 12.0),
                "n3": (6.0, 12.0),
            }
            await it.engine.start(job, await it.over(1, 1), 1)
            assert await it.next() == Started(job.id, 1)
            pods = pods_of(site)
            assert await it.next() == Finished(job.id, 1)
            return pods

    pods = asyncio.run(life())

    assert wrote.read_text() == "127.0.0.2 of-ml"
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n2", "n3"}
    for spec_of in (pod["spec"] for pod in pods):
        assert spec_of["hostNetwork"] is True
        assert (spec_of["serviceAccountName"], spec_of["priority"]) == ("trainer", 1000)
        assert spec_of["imagePullSecrets"] == [{"name": "registry"}]


def test_a_node_with_a_taint_is_used_only_where_it_is_tolerated(
    kubeconfig: Path, tmp_path: Path
) -> None:
    """Kubernetes itself ends pods there that do not tolerate it."""
    sleeps = shell_job("sleeps", 1, "sleep 5")

    async def usable(**more: object) -> set[str]:
        spec = kubernetes_options(kubeconfig, labels="pool", **more)
        async with session_of(spec, tmp_path / "state") as it:
            nodes = {str(node.id) for node in await it.engine.nodes()}
            if nodes:
                await it.begin(sleeps)
                assert await it.next() == Finished(sleeps.id, 1)
            return nodes

    assert asyncio.run(usable(tolerate=SLOW, address="pod")) == {"n2", "n3"}
    assert asyncio.run(usable(address="pod")) == set()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"account": "nobody"}, 'service account .*nobody.* not found|serviceaccount "nobody"'),
        ({"priority_class": "nothing"}, "no PriorityClass with name nothing"),
    ],
)
def test_what_the_server_does_not_know_is_named_where_a_job_fails(
    more: dict[str, str], why: str, kubeconfig: Path, tmp_path: Path
) -> None:
    spec = kubernetes_options(kubeconfig, labels="!pool", address="pod", **more)

    async def life() -> StartFailed:
        async with session_of(spec, tmp_path / "state") as it:
            await it.start(shell_job("refused", 1, "true"))
            failed: StartFailed = await it.told(StartFailed)
            return failed

    with pytest.raises(AssertionError, match=why):
        raise AssertionError(asyncio.run(life()).reason)


def test_nodes_are_read_from_a_file_where_the_service_may_not_list_them(
    site: KubernetesCluster, kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "nodes.json"
    file.write_text(site.kubectl("get", "nodes", "-o", "json"))
    asks = kubernetes_options(kubeconfig, labels="!pool", address="pod")
    reads = kubernetes_options(kubeconfig, labels="!pool", address="pod", nodes_file=str(file))
    job = shell_job("listed", 1, "true")

    async def life(spec: PartSpec) -> None:
        async with session_of(spec, tmp_path / "state") as it:
            await it.begin(job)
            assert await it.next() == Finished(job.id, 1)

    binding = site.kubectl("get", "clusterrolebinding", "weft-reads-nodes", "-o", "json")
    (tmp_path / "binding.json").write_text(binding)
    site.kubectl("delete", "clusterrolebinding", "weft-reads-nodes")
    try:
        with pytest.raises(EngineError, match="nodes_file"):
            asyncio.run(life(asks))
        asyncio.run(life(reads))
    finally:
        site.kubectl("create", "-f", str(tmp_path / "binding.json"))


def pods_of(cluster: KubernetesCluster) -> list[Object]:
    pods: list[Object] = cluster.api.get(f"/api/v1/namespaces/{SPACE}/pods")["items"]
    return pods
