"""Requests for tenants' pods, as a server sees them: whose rights, in which namespace."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, JobId, NodeId
from weft.engines.fleet.port import AttemptPart, AttemptPhase, Gang
from weft.engines.kubernetes.access import Access
from weft.engines.kubernetes.api import Api
from weft.engines.kubernetes.cluster import KubernetesCluster, NodeReader
from weft.engines.kubernetes.namespaces import read_tenants
from weft.engines.kubernetes.pods import Mount, PodSettings

TENANTS = ("vision", "nlp")
NODES = {"kind": "List", "items": [{"metadata": {"name": "a1"}}]}


class Server(ThreadingHTTPServer):
    """Pods by namespace, for whom `rights` names alone; it stores them, and runs nothing."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.pods: dict[str, dict[str, Any]] = {tenant: {} for tenant in TENANTS}
        self.rights = {tenant: f"system:serviceaccount:{tenant}:weft" for tenant in TENANTS}
        self.version = 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Request(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if pods := self.allowed():
            watches = "watch" in parse_qs(urlsplit(self.path).query)
            listed = {"items": list(pods[0].values()), "metadata": {"resourceVersion": "1"}}
            self.answer(200, {} if watches else listed)

    def do_POST(self) -> None:
        pod = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if pods := self.allowed():
            self.server.version += 1
            version = str(self.server.version)
            pod["metadata"] |= {"resourceVersion": version, "uid": f"uid-{version}"}
            if urlsplit(self.path).path.endswith("/pods"):
                pods[0][pod["metadata"]["name"]] = pod
            self.answer(201, pod)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if pods := self.allowed():
            self.answer(200, pods[0].pop(urlsplit(self.path).path.rpartition("/")[2]))

    def allowed(self) -> list[dict[str, Any]]:
        """The pods that the path names, in a list; empty, and answered, for who may not."""
        space, who = self.path.split("/")[4], self.headers.get("Impersonate-User", "weft")
        if self.server.rights.get(space) == who:
            return [self.server.pods[space]]
        self.answer(403, {"message": f"User {who} cannot list pods in {space}"})
        return []

    def answer(self, code: int, body: Any) -> None:
        text = json.dumps(body).encode() if body else b""
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *words: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def manager(server: Server, tmp_path: Path) -> KubernetesCluster:
    file, nodes = tmp_path / "tenants.toml", tmp_path / "nodes.json"
    file.write_text("\n".join(f'[{tenant}]\nnamespace = "{tenant}"' for tenant in TENANTS))
    nodes.write_text(json.dumps(NODES))
    site = PodSettings("", "weft", "none", mounts=(Mount("/"),), address="pod")
    tenants = read_tenants(file, site, tmp_path)
    return KubernetesCluster(Api(Access(server.url, None)), site, NodeReader(file=nodes), tenants)


def gang(tenant: str) -> Gang:
    part = AttemptPart(NodeId("a1"), (0,), 1.0, 1.0, Path("/tmp/x"))
    return Gang(JobId(f"of-{tenant}"), 1, "net", tenant, (part,))


def test_a_tenants_pods_are_made_seen_and_ended_in_its_namespace(
    server: Server, tmp_path: Path
) -> None:
    async def scenario() -> None:
        it = manager(server, tmp_path)
        await it.open("0123456789ab")
        for tenant in TENANTS:
            await it.submit(gang(tenant))
        assert {tenant: len(pods) for tenant, pods in server.pods.items()} == {
            "vision": 1,
            "nlp": 1,
        }
        seen = await it.poll()
        assert {key: observed.phase for key, observed in seen.items()} == {
            gang(tenant).key: AttemptPhase.PENDING for tenant in TENANTS
        }
        await it.cancel(gang("vision").key)
        assert [len(server.pods[tenant]) for tenant in TENANTS] == [0, 1]
        with pytest.raises(InvalidConfig, match="tenant 'audio' has no namespace"):
            it.check(Job(JobId("x"), tenant="audio"))
        await it.close()

    asyncio.run(scenario())


def test_missing_rights_are_told_by_tenant(server: Server, tmp_path: Path) -> None:
    del server.rights["nlp"]

    with pytest.raises(EngineError, match=r"(?s)tenant 'nlp'.*tenant\.yaml.*'nlp'"):
        asyncio.run(manager(server, tmp_path).open("0123456789ab"))


def test_rights_that_are_taken_back_stop_that_tenant_alone(server: Server, tmp_path: Path) -> None:
    async def scenario() -> None:
        it = manager(server, tmp_path)
        await it.open("0123456789ab")
        await it.submit(gang("nlp"))
        del server.rights["nlp"]

        with pytest.raises(EngineError, match=r"(?s)refused a pod.*tenant\.yaml"):
            await it.submit(gang("nlp"))
        await it.submit(gang("vision"))

        assert set(await it.poll()) == {gang(tenant).key for tenant in TENANTS}
        await it.close()

    asyncio.run(scenario())
