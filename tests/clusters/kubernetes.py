"""A throw-away Kubernetes on this machine: etcd, the real API server, nodes as processes.

    python -m tests.clusters.kubernetes up FOLDER [--nodes a1:A100:2,t1:Tesla-T4:2,t2:Tesla-T4:2]
    python -m tests.clusters.kubernetes down FOLDER

Everything listens on loopback, lives in FOLDER, and is ended by its own process id. The server is
the one that `tests/clusters/build_kubernetes.sh` builds once. `FOLDER/kubeconfig` has the rights
of `deploy/kubernetes/rbac.yaml` alone, `FOLDER/admin.kubeconfig` all of them.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.clusters.kubelet import processes_of
from weft.core.errors import WeftError
from weft.engines.kubernetes.access import read_kubeconfig
from weft.engines.kubernetes.api import Api, ApiServerUnreachable
from weft.engines.kubernetes.nodes import DEVICE

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "kubernetes"
BUILD = "tests/clusters/build_kubernetes.sh"
SERVERS = ("kube-apiserver", "kube-controller-manager")
SCHEDULER = "kube-scheduler"
NAMESPACE = "weft"
LOST_S = 6  # a node is lost when its lease was not renewed for so long; elsewhere 40
CALM_S = 2.0  # what the server takes to see that leases were not renewed while it was away
PATIENCE_S = 600.0
NO_PLAIN_PORT = 24  # the release from which on nothing listens without TLS
CLAIMS = 34  # that from which on devices can be claimed (DRA)
EVICTS_APART = 29  # that from which on a controller of its own evicts the pods of lost nodes


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node: its name, what its GPUs are, how many it has, and the resource that they are.

    `address` is its own, one of loopback's, and its pods' as well.
    """

    name: str
    product: str = "NVIDIA-A100-SXM4-40GB"
    gpus: int = 2
    device: str = DEVICE
    address: str = "127.0.0.1"


THREE = (NodeSpec("a1"), NodeSpec("t1", "Tesla-T4"), NodeSpec("t2", "Tesla-T4"))


def server_folder() -> Path:
    """Where the servers are kept once they are built."""
    named = os.environ.get("WEFT_KUBERNETES")
    return Path(named) if named else Path.home() / ".cache" / "weft" / "kubernetes"


def what_is_missing() -> str:
    """Why there can be no cluster here, with the command that changes it; empty if there can."""
    lacking = [name for name in ("etcd", "kubectl", "openssl") if shutil.which(name) is None]
    lacking += [name for name in SERVERS if not (server_folder() / name).exists()]
    if not lacking:
        return ""
    return f"no {', '.join(lacking)}; `sh {BUILD}` installs and builds them"


@cache
def release() -> int:
    """Which one the API server is, of Kubernetes 1."""
    command = [str(server_folder() / SERVERS[0]), "--version"]
    version = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return int(version.split(".")[1])


def why_no_scheduler() -> str:
    """Servers that were built before it was wanted do not have it beside them."""
    if (server_folder() / SCHEDULER).exists():
        return ""
    return f"no {SCHEDULER} in {server_folder()}; `sh {BUILD}` builds it"


def why_no_custom_resources() -> str:
    """Servers that were built before this mark was made die of the first custom resource."""
    if (server_folder() / "custom-resources").exists():
        return ""
    return f"an older API server is in {server_folder()}; `sh {BUILD}` builds another"


class KubernetesCluster:
    """Brought up in `folder`, and torn down by the process ids that are kept there.

    Where it `checks_accounts`, the server refuses pods of service accounts that are not there.
    """

    def __init__(
        self, folder: Path, nodes: Sequence[NodeSpec] = THREE, *, checks_accounts: bool = False
    ) -> None:
        self.folder = folder.absolute()
        accounts = () if checks_accounts else ("ServiceAccount",)
        self._unchecked = ("TaintNodesByCondition", *accounts)
        self.nodes = {node.name: node for node in nodes}
        self.kubeconfig = self.folder / "kubeconfig"
        self.admin_kubeconfig = self.folder / "admin.kubeconfig"
        self._api: Api | None = None

    # ---- all of it

    def up(self) -> None:
        """Servers, the namespace with our rights in it, and all nodes Ready."""
        if missing := what_is_missing():
            raise WeftError(missing)
        (self.folder / "pids").mkdir(parents=True, exist_ok=True)
        (self.folder / "log").mkdir(exist_ok=True)
        self._write_keys()
        self.start_etcd()
        self.start_server()
        self.start_controller()
        self.kubectl("apply", "-f", str(DEPLOY / "namespace.yaml"), "-f", str(DEPLOY / "rbac.yaml"))
        for name in self.nodes:
            self.start_node(name)
        self.wait_for_nodes()

    def down(self) -> None:
        """Nothing of it is left running."""
        for name in self.nodes:
            with suppress(FileNotFoundError):
                self.kill_node(name)
        for name in ("scheduler", "controller", "server", "etcd"):
            self._kill(name)
        if self._api is not None:
            self._api.close()

    def clear(self) -> None:
        """No pod is left in our namespace, and nothing runs there."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"

        def is_clear() -> bool:
            pods = self.api.get(path)["items"]
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    self.api.delete(f"{path}/{pod['metadata']['name']}", grace_s=1)
            return not pods

        wait_until(is_clear, "no pod is left")

    def kubectl(self, *words: str) -> str:
        """What an administrator's kubectl prints."""
        command = ["kubectl", "--kubeconfig", str(self.admin_kubeconfig), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise WeftError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    @property
    def api(self) -> Api:
        """All rights."""
        if self._api is None:
            self._api = Api(read_kubeconfig(self.admin_kubeconfig))
        return self._api

    # ---- nodes

    def start_node(self, name: str) -> None:
        """A kubelet; one that was killed finds its node's processes again."""
        node = self.nodes[name]
        options = {
            "--kubeconfig": str(self.admin_kubeconfig),
            "--node": name,
            "--kind": node.product,
            "--gpus": str(node.gpus),
            "--device": node.device,
            "--address": node.address,
            "--root": str(self.folder / "pods"),
        }
        words = [word for pair in options.items() for word in pair]
        self._start(f"node-{name}", [sys.executable, "-m", "tests.clusters.kubelet", *words])

    def kill_kubelet(self, name: str) -> None:
        """Nobody renews its lease; its processes run on, as on a node whose network is gone."""
        self._kill(f"node-{name}", signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        """The whole machine: kubelet and everything that ran there."""
        self.kill_kubelet(name)
        for folder in (self.folder / "pods" / name).iterdir():
            for pid in processes_of(folder.name):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def add_node(self, node: NodeSpec, labels: Mapping[str, str]) -> None:
        """One more, Ready."""
        self.nodes[node.name] = node
        self.start_node(node.name)
        self.wait_for_nodes()
        self.api.merge(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": dict(labels)}})

    def remove_node(self, name: str) -> None:
        """Its machine is gone, and so is its object."""
        self.kill_node(name)
        self.api.delete(f"/api/v1/nodes/{name}")
        del self.nodes[name]

    def restore_node(self, name: str) -> None:
        """It is back and Ready; one that never went is left alone."""
        if not (self.folder / "pids" / f"node-{name}").exists():
            self.start_node(name)
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Until the server says Ready of all of them."""

        def ready() -> bool:
            items = self.api.get("/api/v1/nodes")["items"]
            statuses = [
                condition["status"]
                for node in items
                for condition in node["status"].get("conditions") or ()
                if condition["type"] == "Ready"
            ]
            return len(items) >= len(self.nodes) and all(status == "True" for status in statuses)

        wait_until(ready, "all nodes are Ready")
        time.sleep(CALM_S)
        wait_until(ready, "all nodes are Ready and stay so")

    # ---- servers

    def start_etcd(self) -> None:
        """The store, on ports that stay the same after a restart."""
        client, peer = self._port("etcd"), self._port("etcd-peer")
        at = f"http://127.0.0.1:{client}"
        options = {
            "--data-dir": str(self.folder / "etcd"),
            "--listen-client-urls": at,
            "--advertise-client-urls": at,
            "--listen-peer-urls": f"http://127.0.0.1:{peer}",
        }
        self._start("etcd", ["etcd", *joined(options), "--unsafe-no-fsync"])

    def start_server(self) -> None:
        """The API server, answering."""
        options = {
            "--etcd-servers": f"http://127.0.0.1:{self._port('etcd')}",
            "--bind-address": "127.0.0.1",
            "--advertise-address": "127.0.0.1",
            "--secure-port": str(self._port("server")),
            "--cert-dir": str(self.folder / "certs"),
            "--service-cluster-ip-range": "10.99.0.0/24",
            "--token-auth-file": str(self.folder / "tokens.csv"),
            "--authorization-mode": "RBAC",
            "--service-account-issuer": "https://weft.test",
            "--service-account-key-file": str(self.folder / "account.pub"),
            "--service-account-signing-key-file": str(self.folder / "account.key"),
            "--disable-admission-plugins": ",".join(self._unchecked),
            "--endpoint-reconciler-type": "none",
        }
        self._start("server", [str(server_folder() / SERVERS[0]), *joined(options)])
        certificate = self.folder / "certs" / "apiserver.crt"
        wait_until(certificate.exists, "the API server has a certificate")
        self._write_kubeconfig(self.admin_kubeconfig, certificate, "admin-token")
        self._write_kubeconfig(self.kubeconfig, certificate, "weft-token")
        wait_until(self._answers, "the API server is ready")

    def stop_server(self) -> None:
        """Killed, as in a crash."""
        self._kill("server", signal.SIGKILL)

    def start_controller(self) -> None:
        """What marks nodes as lost, evicts their pods, and counts who may be evicted."""
        apart = ",taint-eviction-controller" if release() >= EVICTS_APART else ""
        apart += ",resourceclaim-controller" if release() >= CLAIMS else ""
        options = {
            "--kubeconfig": str(self.admin_kubeconfig),
            "--controllers": f"nodelifecycle,disruption{apart}",
            "--leader-elect": "false",
            "--node-monitor-grace-period": f"{LOST_S}s",
            "--node-monitor-period": "1s",
            "--bind-address": "127.0.0.1",
            "--secure-port": str(self._port("controller")),
            "--cert-dir": str(self.folder / "certs"),
            **({"--port": "0"} if release() < NO_PLAIN_PORT else {}),
        }
        self._start("controller", [str(server_folder() / SERVERS[1]), *joined(options)])

    def start_scheduler(self) -> None:
        """The cluster's own, for pods that are bound to no node."""
        options = {
            "--kubeconfig": str(self.admin_kubeconfig),
            "--leader-elect": "false",
            "--bind-address": "127.0.0.1",
            "--secure-port": str(self._port("scheduler")),
            "--cert-dir": str(self.folder / "certs"),
            **({"--port": "0"} if release() < NO_PLAIN_PORT else {}),
        }
        self._start("scheduler", [str(server_folder() / SCHEDULER), *joined(options)])

    def stop_scheduler(self) -> None:
        """Killed, as in a crash."""
        self._kill("scheduler", signal.SIGKILL)

    def stop_controller(self) -> None:
        """Killed, as in a crash."""
        self._kill("controller", signal.SIGKILL)

    # ---- parts

    def _answers(self) -> bool:
        try:
            self.api.get("/api/v1/namespaces/kube-system")
            self.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/admin")
        except WeftError as error:
            if isinstance(error, ApiServerUnreachable) or "not found" in error.what:
                return False
            raise
        return True

    def _start(self, name: str, command: Sequence[str]) -> None:
        env = {**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64", "PYTHONPATH": str(ROOT)}
        env.pop("KUBECONFIG", None)
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self.folder / "pids" / name).write_text(str(process.pid))
        CHILDREN[process.pid] = process

    def _kill(self, name: str, sign: int = signal.SIGTERM) -> None:
        path = self.folder / "pids" / name
        if not path.exists():
            return
        pid = int(path.read_text())
        path.unlink()
        with suppress(ProcessLookupError):
            os.kill(pid, sign)
        wait_until(lambda: is_gone(pid), f"{name} has ended")

    def _port(self, name: str) -> int:
        path = self.folder / "ports.json"
        ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        if name not in ports:
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", 0))
                ports[name] = sock.getsockname()[1]
            path.write_text(json.dumps(ports))
        return ports[name]

    def _write_keys(self) -> None:
        key = str(self.folder / "account.key")
        public = str(self.folder / "account.pub")
        run = {"check": True, "capture_output": True, "timeout": 60}
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], **run)  # type: ignore[call-overload]
        subprocess.run(["openssl", "rsa", "-in", key, "-pubout", "-out", public], **run)  # type: ignore[call-overload]
        account = f"system:serviceaccount:{NAMESPACE}:weft"
        (self.folder / "tokens.csv").write_text(
            f"admin-token,admin,admin,system:masters\nweft-token,{account},weft\n"
        )

    def _write_kubeconfig(self, path: Path, certificate: Path, token: str) -> None:
        authority = base64.b64encode(certificate.read_bytes()).decode()
        server = f"https://127.0.0.1:{self._port('server')}"
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": server, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [
                {
                    "name": "test",
                    "context": {"cluster": "test", "user": "test", "namespace": NAMESPACE},
                }
            ],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(body))


CHILDREN: dict[int, subprocess.Popen[bytes]] = {}


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a child of ours is reaped."""
    child = CHILDREN.get(pid)
    if child is not None:
        return child.poll() is not None
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return text[text.rindex(")") + 2] in "ZX"


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Look again and again, for a long while at most."""
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise WeftError(f"waited {PATIENCE_S:g} s in vain until {what}")
        time.sleep(0.1)


def joined(options: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]


def parse_nodes(text: str) -> tuple[NodeSpec, ...]:
    parts = [word.split(":") for word in text.split(",")]
    return tuple(NodeSpec(name, product, int(gpus)) for name, product, gpus in parts)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parse.add_argument("what", choices=("up", "down"))
    parse.add_argument("folder", type=Path)
    parse.add_argument("--nodes", type=parse_nodes, default=THREE, help="NAME:PRODUCT:GPUS,...")
    options = parse.parse_args()
    cluster = KubernetesCluster(options.folder, options.nodes)
    if options.what == "down":
        nodes = [NodeSpec(path.name) for path in (options.folder / "pods").iterdir()]
        KubernetesCluster(options.folder, nodes).down()
        return
    cluster.up()
    sys.stdout.write(f"export KUBECONFIG={cluster.kubeconfig}\n")


if __name__ == "__main__":
    main()
