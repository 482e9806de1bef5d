"""What engines make of their options: pods, batch scripts, and the command of a Ray head.

Each goes to a stand-in for the cluster, as the engine itself sends it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.cli.stand_in import Asked, StandIn, stand_in
from tests.waiting import until
from weft.app.engine import build_engine
from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.spec.part_spec import PartSpec
from weft.engines.ray import agents, starting

RELEASES = ("1.25", "1.37")
KUBECONFIG = """
current-context: home
clusters: [{name: lab, cluster: {server: "URL"}}, {name: home, cluster: {server: "URL/home"}}]
users: [{name: ann, user: {token: secret}}]
contexts:
- {name: lab, context: {cluster: lab, user: ann, namespace: of-the-context}}
- {name: home, context: {cluster: home, user: ann}}
"""


def node(name: str, *taints: str, **labels: str) -> dict[str, Any]:
    allocatable = {"nvidia.com/gpu": "4", "cpu": "32", "memory": "128Gi"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"} for taint in taints]},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


@pytest.fixture
def server() -> Iterator[StandIn]:
    """An API server that keeps nothing; a watch of it ends at once."""

    def list_of(*items: dict[str, Any]) -> Any:
        body = {"items": items, "metadata": {"resourceVersion": "1"}}
        return lambda asked: (200, b"" if "watch" in asked.query else body)

    def made(asked: Asked) -> tuple[int, Any]:
        more = {"resourceVersion": "2", "uid": "u"}
        return 201, {**asked.body, "metadata": {**asked.body["metadata"], **more}}

    answers: dict[str, Any] = {"GET /nodes": list_of(node("a1", "gpu-only", "site/slow"))}
    for space in ("ml", "of-the-context"):
        answers[f"GET /namespaces/{space}/pods"] = list_of()
        answers[f"POST /namespaces/{space}/pods"] = made
    with stand_in(answers) as started:
        yield started


def kubernetes_options(server: StandIn, folder: Path, **more: object) -> PartSpec:
    (folder / "config").write_text(KUBECONFIG.replace("URL", server.url))
    common = {"kubeconfig": str(folder / "config"), "image": "site/weft:2", "mounts": "/"}
    return PartSpec("kubernetes", {"context": "lab", "address": "node", **common, **more})


def pod_of(server: StandIn, spec: PartSpec, folder: Path, priority: float = 0.0) -> Any:
    """The nodes that the engine has, and the pod of a job of one GPU, as it was sent."""

    def sent() -> list[Asked]:
        return [
            asked
            for asked in server.asked
            if asked.method == "POST" and asked.path.endswith("/pods")
        ]

    async def life() -> tuple[Node, ...]:
        engine = build_engine(spec, state=folder / "state")
        nodes = tuple(await engine.nodes())
        await engine.adopt(())
        launch = Launch(("true",), workdir=str(folder))
        job = Job(JobId("net"), launch=launch, priority=priority)
        await engine.start(job, Allocation((Slice(nodes[0].id, (0,)),)), 1)
        await until(sent)
        await engine.close()
        return nodes

    nodes = asyncio.run(life())
    (asked,) = sent()
    for release in RELEASES:
        kubernetes_validate.validate(asked.body, release, strict=True)
    return nodes, asked


def test_a_pod_has_all_that_the_options_say(server: StandIn, tmp_path: Path) -> None:
    spec = kubernetes_options(
        server,
        tmp_path,
        namespace="ml",
        python="/opt/py",
        labels="gpu-pool=weft+!broken",
        tolerate="gpu-only+site/slow",
        keep_cpus=2,
        keep_mem_gb=28,
        pull_secret="registry",
        account="trainer",
        priority_class="training+spot:scavenger",
        secrets="wandb+hub",
    )

    (machine,), asked = pod_of(server, spec, tmp_path)

    assert (machine.cpus, machine.mem_gb) == (30.0, 100.0)
    listed = [asked.query for asked in server.asked if asked.path == "/nodes"]
    assert {query["labelSelector"] for query in listed if "limit" not in query} == {
        "gpu-pool=weft,!broken"
    }
    assert (asked.path, asked.token) == ("/namespaces/ml/pods", "Bearer secret")
    made = asked.body["spec"]
    assert made["imagePullSecrets"] == [{"name": "registry"}]
    assert (made["serviceAccountName"], made["priorityClassName"]) == ("trainer", "training")
    for key in ("gpu-only", "site/slow"):
        assert {"key": key, "operator": "Exists"} in made["tolerations"]
    assert (made["nodeName"], made["hostNetwork"]) == ("a1", True)
    (container,) = made["containers"]
    assert (container["image"], container["command"][0]) == ("site/weft:2", "/opt/py")
    assert [each["secretRef"]["name"] for each in container["envFrom"]] == ["wandb", "hub"]
    address = container["env"][0]["valueFrom"]["fieldRef"]
    assert address == {"fieldPath": "status.hostIP"}


def test_nodes_from_a_file_are_chosen_by_their_labels_too(server: StandIn, tmp_path: Path) -> None:
    ours, others = node("a1", pool="weft"), node("a2", pool="else")
    broken = node("a3", pool="weft", broken="yes")
    file = tmp_path / "nodes.yaml"
    file.write_text(json.dumps({"items": [others, broken, ours]}))
    spec = kubernetes_options(
        server, tmp_path, nodes_file=str(file), labels="pool=weft+!broken+pool!=x+pool"
    )

    nodes, asked = pod_of(server, spec, tmp_path)

    assert [each.id for each in nodes] == ["a1"]
    assert asked.path == "/namespaces/of-the-context/pods"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"labels": "pool=weft+=x"}, "labels has '=x'"),
        ({"tolerate": "gpu=true:NoSchedule"}, "tolerate has 'gpu=true:NoSchedule'"),
        ({"account": "Trainer"}, "account is 'Trainer'"),
        ({"pull_secret": "a b"}, "pull_secret is 'a b'"),
        ({"keep_cpus": -1.0}, "keep_cpus is -1"),
        ({"keep_mem_gb": -1.0}, "keep_mem_gb is -1"),
        ({"namespace": "My_Space"}, "namespace is 'My_Space'"),
        ({"context": "nowhere"}, "no context 'nowhere'; it has home, lab"),
    ],
)
def test_what_kubernetes_would_refuse_of_every_pod_is_refused_at_once(
    server: StandIn, tmp_path: Path, more: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidConfig, match=words):
        build_engine(kubernetes_options(server, tmp_path, **more), state=tmp_path / "state")


CLIENT = """#!/bin/sh
case "$(basename $0) $*" in
  "sinfo -h -N -o "*) echo "a1|idle|8|16000|(null)|10.0.0.1|none" ;;
  sbatch*) cat > $SITE/script.new; mv $SITE/script.new $SITE/script; echo 7 ;;
esac
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's programs, which know one node without GPUs and keep what is submitted."""
    folder = tmp_path / "site"
    folder.mkdir()
    for name in ("sbatch", "squeue", "sinfo", "scancel", "scontrol", "sacctmgr"):
        (folder / name).write_text(CLIENT.replace("$SITE", str(folder)))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_batch_script_has_all_that_the_options_say(mode: str, site: Path, tmp_path: Path) -> None:
    site_options = "slurm:python=/opt/py,partition=gpu,account=lab,qos=long,time_min=90,slots=3"
    script = site / "script"

    async def life() -> None:
        spec = f"{site_options},mode={mode}"
        engine = build_engine(spec, state=tmp_path / "state")
        opening = asyncio.create_task(engine.nodes())
        if mode == "pilot":  # it waits for its nodes
            await until(lambda: script.exists() or opening.done())
        else:
            (machine,) = await opening
            assert machine.gpus == 3
            await engine.adopt(())
            job = Job(JobId("net"), launch=Launch(("true",), workdir=str(tmp_path)))
            await engine.start(job, Allocation((Slice(machine.id, (0,)),)), 1)
            await until(script.exists)
        opening.cancel()
        await asyncio.wait([opening])
        await engine.close()

    asyncio.run(life())

    lines = script.read_text().splitlines()
    for wanted in ("partition=gpu", "account=lab", "qos=long", "time=90"):
        assert f"#SBATCH --{wanted}" in lines
    assert any("/opt/py" in line for line in lines)


def test_a_time_limit_below_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="time_min is -5"):
        build_engine("slurm:time_min=-5", state=tmp_path)


@pytest.mark.parametrize("amount", ["0", "-1", "nan"])
def test_a_bound_on_what_ray_carries_is_an_amount(amount: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="carried_gb"):
        build_engine(f"ray:carried_gb={amount}", state=tmp_path)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (
            "ray:ip=127.0.0.1,port=0,name=h1,kind=h200,gpus=2",
            ["--num-gpus=2", "--labels=weft/node=h1,weft/kind=h200"],
        ),
        (
            "ray:ip=127.0.0.1,port=0,name=h1,gpus=0,slots=5",
            ["--num-gpus=0", '--resources={"weft_slots": 5}'],
        ),
    ],
)
def test_a_ray_head_is_begun_as_the_options_say(
    written: str, wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def spawn(command: list[str], *_: object) -> int:
        commands.append(command)
        raise EngineError("this is as far as it goes")

    monkeypatch.setattr(agents, "find_spec", lambda _name: True)
    monkeypatch.setattr(starting, "spawn_command", spawn)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    engine = build_engine(written, state=tmp_path / "state")

    with pytest.raises(EngineError, match="as far as it goes"):
        asyncio.run(engine.nodes())

    ((*command,),) = commands
    assert {*wanted, "--head", "--node-ip-address=127.0.0.1"} <= {*command}
