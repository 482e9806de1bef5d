"""A kubelet that runs the containers of its pods as plain processes; for tests alone.

    python -m tests.clusters.kubelet --kubeconfig FILE --node a1 --kind A100 --gpus 4 --root DIR

It does what the API promises of a node: registers itself, renews its lease, admits pods as far as
devices, CPUs and memory go, starts their command with the environment they ask for, tells
Running and exit codes, ends them with TERM and KILL, and kills what takes more memory than its
limit. Images and volumes are ignored: processes see this machine. Processes outlive it, as
containers outlive a kubelet, and are found again by the next one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import subprocess
import threading
import time
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from weft.core.errors import WeftError
from weft.engines.kubernetes.access import read_kubeconfig
from weft.engines.kubernetes.api import MISSING, Api, ApiError, Object, Watching
from weft.engines.kubernetes.nodes import DEVICE, PRODUCT, quantity

log = logging.getLogger(__name__)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
TAG = "PROCESS_KUBELET_POD"
LOOK_S = 0.1
RENEW_S = 1.0
TALLY_S = 0.5
KILLED = 128 + signal.SIGKILL
# What a cluster's name service does: the container has a file of hosts of its own.
NAMES = 'mount --bind "$0" /etc/hosts && exec "$@"'
# Starts a container's process in a session of its own and keeps its exit code, whoever is there
# to read it.
SHIM = '"$@" & echo $! >"$0/pid"; wait $!; echo $? >"$0/code.tmp"; mv "$0/code.tmp" "$0/code"'


@dataclass
class Running:
    """One pod here; `devices` are its numbers of this node."""

    uid: str
    path: str
    folder: Path
    devices: list[int] = field(default_factory=list)
    cpus: float = 0.0
    mem_gb: float = 0.0
    told: str = ""
    kill_at: float | None = None
    oom: bool = False


class Kubelet:
    """One node."""

    def __init__(self, api: Api, options: argparse.Namespace) -> None:
        self.api = api
        self.node: str = options.node
        self.options = options
        self.root = Path(options.root) / options.node
        self.root.mkdir(parents=True, exist_ok=True)
        self.pods: dict[str, Running] = {}
        self.done: set[str] = set()  # whose end was told, though the watch may not show it yet
        self.changed = threading.Event()
        self.watching = Watching(
            api, "/api/v1/pods", changed=self.changed.set, fields=f"spec.nodeName={self.node}"
        )

    def run(self) -> None:
        """Until somebody kills it."""
        self.register()
        self.watching.start()
        threading.Thread(target=self.renew, daemon=True).start()
        threading.Thread(target=self.tally, daemon=True).start()
        while True:
            self.changed.wait(LOOK_S)
            self.changed.clear()
            try:
                self.look()
            except WeftError as error:
                log.warning("node=%s %s", self.node, error.what)
                time.sleep(0.5)

    # ---- the node

    def register(self) -> None:
        """The node object, its status, and its lease."""
        meta: Object = {
            "name": self.node,
            "labels": {
                "kubernetes.io/hostname": self.node,
                **({PRODUCT: self.options.kind} if self.options.gpus else {}),
            },
        }
        with suppress_existing():
            self.api.create("/api/v1/nodes", {"metadata": meta})
        self.api.merge(f"/api/v1/nodes/{self.node}", {"metadata": {"labels": meta["labels"]}})
        self.beat()
        holds = {
            "cpu": str(self.options.cpus),
            "memory": f"{self.options.mem_gb}Gi",
            "pods": "110",
            self.options.device: str(self.options.gpus),
        }
        status = {
            "capacity": holds,
            "allocatable": holds,
            "addresses": [{"type": "InternalIP", "address": self.options.address}],
        }
        self.api.merge(f"/api/v1/nodes/{self.node}/status", {"status": status})
        self.say_ready()
        self.untaint()

    def say_ready(self) -> None:
        """Unless the server knows; it forgets when it hears nothing for a while."""
        node = self.api.get(f"/api/v1/nodes/{self.node}")
        conditions = {
            condition["type"]: condition["status"]
            for condition in node["status"].get("conditions") or ()
        }
        if conditions.get("Ready") != "True":
            ready = [condition("Ready", "True", "KubeletReady", "runs processes")]
            self.api.merge(f"/api/v1/nodes/{self.node}/status", {"status": {"conditions": ready}})

    def untaint(self) -> None:
        """Where nobody else takes the mark of a lost node away."""
        node = self.api.get(f"/api/v1/nodes/{self.node}")
        kept = [
            taint
            for taint in node["spec"].get("taints") or ()
            if not taint["key"].startswith("node.kubernetes.io/")
        ]
        self.api.merge(f"/api/v1/nodes/{self.node}", {"spec": {"taints": kept or None}})

    def renew(self) -> None:
        while True:
            try:
                self.beat()
                self.say_ready()
            except WeftError as error:
                log.warning("node=%s lease: %s", self.node, error.what)
            time.sleep(RENEW_S)

    def beat(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.node, "leaseDurationSeconds": 4, "renewTime": now}
        try:
            self.api.merge(f"{LEASES}/{self.node}", {"spec": spec})
        except ApiError as error:
            if error.code != MISSING:
                raise
            self.api.create(LEASES, {"metadata": {"name": self.node}, "spec": spec})

    # ---- pods

    def look(self) -> None:
        """Bring every pod of this node one step further."""
        now = self.watching.objects()
        by_uid = {str(pod["metadata"]["uid"]): pod for pod in now.values()}
        self.done &= set(by_uid)
        for uid, pod in by_uid.items():
            ended = over(pod) or uid in self.done
            if uid not in self.pods and not ended:
                self.admit(uid, pod)
            elif uid not in self.pods and "deletionTimestamp" in pod["metadata"]:
                self.remove(pod)
        for uid in list(self.pods):
            self.attend(self.pods[uid], by_uid.get(uid))

    def admit(self, uid: str, pod: Object) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        folder = self.root / uid
        limits = (spec["containers"][0].get("resources") or {}).get("limits") or {}
        asked = (spec["containers"][0].get("resources") or {}).get("requests") or limits
        running = Running(
            uid,
            path,
            folder,
            cpus=quantity(str(asked.get("cpu", "0"))),
            mem_gb=quantity(str(limits.get("memory", "0"))) / 2**30,
        )
        if (folder / "devices.json").exists():  # begun by the kubelet before this one
            running.devices = json.loads((folder / "devices.json").read_text())
            self.pods[uid] = running
            return
        if "deletionTimestamp" in meta:
            self.remove(pod)
            return
        wanted = int(limits.get(self.options.device, "0"))
        if short := self.shortage(running, wanted):
            self.tell(running, "Failed", {"reason": f"OutOf{short}", "message": f"no {short} left"})
            self.done.add(uid)
            return
        running.devices = self.free()[:wanted]
        self.pods[uid] = running
        folder.mkdir()
        (folder / "devices.json").write_text(json.dumps(running.devices))
        self.launch(running, pod)

    def free(self) -> list[int]:
        taken = {device for running in self.pods.values() for device in running.devices}
        return [device for device in range(self.options.gpus) if device not in taken]

    def shortage(self, running: Running, wanted: int) -> str:
        if wanted > len(self.free()):
            return str(self.options.device)
        if running.cpus + sum(pod.cpus for pod in self.pods.values()) > self.options.cpus:
            return "cpu"
        return ""

    def launch(self, running: Running, pod: Object) -> None:
        container = pod["spec"]["containers"][0]
        env = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **self.secrets(container, pod),
            **{item["name"]: self.value(item, pod) for item in container.get("env") or ()},
            TAG: running.uid,
            "NVIDIA_VISIBLE_DEVICES": ",".join(map(str, running.devices)) or "void",
            "GLOO_SOCKET_IFNAME": "lo",  # the network that its pods have
        }
        log = (running.folder / "log").open("wb")
        command = [*container.get("command", ()), *container.get("args", ())]
        if can_name():
            hosts = self.write_hosts(running, pod)
            command = ["unshare", "-m", "sh", "-c", NAMES, str(hosts), *command]
        try:
            subprocess.Popen(
                ["/bin/sh", "-c", SHIM, str(running.folder), *command],
                env=env,
                cwd=container.get("workingDir") or "/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            (running.folder / "code").write_text("128")
            log.write(str(error).encode())
        finally:
            log.close()
        self.tell_running(running)

    def write_hosts(self, running: Running, pod: Object) -> Path:
        """The names that headless services give to pods, all of them on loopback."""
        space = pod["metadata"]["namespace"]
        pods = self.api.get(f"/api/v1/namespaces/{space}/pods")["items"]
        named = [each["spec"] for each in pods if each["spec"].get("subdomain")]
        names = [f"{each['hostname']}.{each['subdomain']}.{space}.svc" for each in named]
        hosts = running.folder / "hosts"
        lines = [Path("/etc/hosts").read_text(), *(f"127.0.0.1 {name}" for name in names)]
        hosts.write_text("\n".join(lines) + "\n")
        return hosts

    def secrets(self, container: Object, pod: Object) -> dict[str, str]:
        """The keys of the secrets that a container names, as variables."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets"
        names = [source["secretRef"]["name"] for source in container.get("envFrom") or ()]
        held = [self.api.get(f"{path}/{name}")["data"] for name in names]
        return {key: b64decode(text).decode() for secret in held for key, text in secret.items()}

    def value(self, item: Object, pod: Object) -> str:
        if "valueFrom" not in item:
            return str(item.get("value", ""))
        field = item["valueFrom"]["fieldRef"]["fieldPath"]
        known = {
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": pod["metadata"]["namespace"],
            "spec.nodeName": self.node,
            "status.podIP": self.options.address,
            "status.hostIP": self.options.address,
        }
        return str(known[field])

    def attend(self, running: Running, pod: Object | None) -> None:
        """Tell its end, or bring it about."""
        reap_children()
        code = running.folder / "code"
        if running.told == "":
            self.tell_running(running)
        if code.exists():
            end(running)  # what its first process left behind
            self.tell_ended(running, int(code.read_text() or KILLED))
            self.drop(running, pod)
            return
        leaving = pod is None or "deletionTimestamp" in pod["metadata"]
        if leaving and running.kill_at is None:
            grace = 0 if pod is None else int(pod["metadata"]["deletionGracePeriodSeconds"])
            running.kill_at = time.monotonic() + grace
            with suppress(OSError, ValueError):
                os.kill(int((running.folder / "pid").read_text()), signal.SIGTERM)
        if running.oom or (running.kill_at is not None and time.monotonic() >= running.kill_at):
            end(running)
            time.sleep(0.05)  # its shim writes the code
            if not code.exists():
                code.write_text(str(KILLED))

    def drop(self, running: Running, pod: Object | None) -> None:
        del self.pods[running.uid]
        self.done.add(running.uid)
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self.remove(pod)

    def remove(self, pod: Object) -> None:
        """The last word on a pod that is to go: nothing of it is left."""
        meta = pod["metadata"]
        self.api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", grace_s=0)
        shutil.rmtree(self.root / str(meta["uid"]), ignore_errors=True)

    # ---- what the server is told

    def tell_running(self, running: Running) -> None:
        state = {"running": {"startedAt": stamp()}}
        self.tell(running, "Running", container_status(state, ready=True))

    def tell_ended(self, running: Running, code: int) -> None:
        reason = "OOMKilled" if running.oom else "Completed" if code == 0 else "Error"
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": stamp()}}
        phase = "Succeeded" if code == 0 and not running.oom else "Failed"
        self.tell(running, phase, container_status(state, ready=False))

    def tell(self, running: Running, phase: str, more: Object) -> None:
        ready = condition("Ready", str(phase == "Running"), phase, "")
        status = {"phase": phase, "podIP": self.options.address, "conditions": [ready], **more}
        try:
            self.api.merge(
                f"{running.path}/status", {"metadata": {"uid": running.uid}, "status": status}
            )
        except ApiError as error:
            if error.code not in (MISSING, 409):
                raise
        running.told = phase

    def tally(self) -> None:
        """Kill what has more memory than its limit."""
        while True:
            for running in list(self.pods.values()):
                if running.mem_gb and resident_gb(running) > running.mem_gb:
                    running.oom = True
                    self.changed.set()
            time.sleep(TALLY_S)


class suppress_existing(suppress):  # noqa: N801 - used like `suppress`
    """Creating what is there already is fine."""

    def __exit__(self, kind, error, trace):  # type: ignore[no-untyped-def]
        return isinstance(error, ApiError) and error.code == 409


def can_name() -> bool:
    """Whether pods can be given names here; without that, ask for their addresses."""
    return os.geteuid() == 0 and shutil.which("unshare") is not None


def over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def condition(kind: str, status: str, reason: str, message: str) -> Object:
    at = stamp()
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def container_status(state: Object, *, ready: bool) -> Object:
    status = {"name": "agent", "state": state, "ready": ready, "restartCount": 0}
    return {"containerStatuses": [{**status, "image": "none", "imageID": ""}]}


def stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def processes_of(uid: str) -> list[int]:
    """Everything that was ever started in a pod: a container of one."""
    mark = f"{TAG}={uid}".encode()
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
    return pids


def end(running: Running) -> None:
    for pid in processes_of(running.uid):
        with suppress(OSError):
            if b"wait $!" not in (Path("/proc") / str(pid) / "cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


def resident_gb(running: Running) -> float:
    page, total = os.sysconf("SC_PAGE_SIZE"), 0
    for pid in processes_of(running.uid):
        with suppress(OSError):
            total += int((Path("/proc") / str(pid) / "statm").read_text().split()[1]) * page
    return total / 2**30


def reap_children() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("--kubeconfig", required=True, type=Path)
    parse.add_argument("--node", required=True)
    parse.add_argument("--kind", default="A100")
    parse.add_argument("--gpus", type=int, default=2)
    parse.add_argument("--device", default=DEVICE, help="what its GPUs are called")
    parse.add_argument("--address", default="127.0.0.1", help="its own, and that of its pods")
    parse.add_argument("--cpus", type=float, default=8)
    parse.add_argument("--mem-gb", type=int, default=16)
    parse.add_argument("--root", required=True)
    options = parse.parse_args()
    Kubelet(Api(read_kubeconfig(options.kubeconfig)), options).run()


if __name__ == "__main__":
    main()
