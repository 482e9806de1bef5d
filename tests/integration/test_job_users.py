"""Where the service is root, a tenant's jobs run as its own user and reach nobody else's."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.integration.serving import Running, bearer, token
from tests.integration.users import (
    ANN,
    AS_ROOT,
    BOB,
    STAFF,
    USERS,
    open_folder,
    own_folder,
    python_as,
)
from tests.waiting import LIMIT_S, wait_until
from weft.app.serve.live import Settings
from weft.wire.attempt import folder_of, job_folder, read_json, short_path
from weft.wire.processes import alive

API = "/api/v1"
pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root may become other users")

CONNECT = """
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.settimeout(600)
try:
    line.connect(sys.argv[1])
    line.sendall(sys.argv[2].encode() + b"\\n")
    print(line.recv(4096).decode().strip() or "hung up")
except PermissionError:
    print("closed")
except ConnectionError:
    print("hung up")
"""


@dataclass
class World:
    """A service that runs jobs of tenants a and b as two users, in a folder all can walk to."""

    client: httpx.Client
    folder: Path
    tokens: dict[str, str]
    homes: dict[str, Path]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def submit(self, who: str, job: str, command: list[str], **more: object) -> httpx.Response:
        body = {"id": job, "command": command, "workdir": str(self.homes[who]), "retries": 0}
        headers = bearer(self.tokens[who])
        return self.client.post(f"{API}/jobs", json=body | more, headers=headers)

    def run(self, who: str, job: str, command: list[str], **more: object) -> str:
        """Submit, wait for the end, and return what it printed."""
        answer = self.submit(who, job, command, **more)
        assert answer.status_code == 201, answer.text
        wait_until(lambda: self.job(job)["state"] in ("succeeded", "failed"))
        return self.client.get(f"{API}/jobs/{job}/logs", headers=self.admin).text

    def job(self, job: str) -> dict[str, object]:
        answer: dict[str, object] = self.client.get(f"{API}/jobs/{job}", headers=self.admin).json()
        return answer

    @property
    def admin(self) -> dict[str, str]:
        return bearer(self.tokens["admin"])


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with open_folder() as folder:
        (folder / "users.toml").write_text(USERS)
        homes = {"a": own_folder(folder, ANN), "b": own_folder(folder, BOB)}
        settings = Settings(
            engine="local:cpu=true,slots=4,preload=json/pkgutil",
            state=folder / "state",
            port=0,
            users=folder / "users.toml",
        )
        service = Running(settings)
        with httpx.Client(
            base_url=service.begin(), timeout=LIMIT_S, trust_env=False, verify=False
        ) as client:
            admin = token(client, "admin")
            tokens = {name: token(client, "user", name, admin) for name in ("a", "b", "c")}
            homes |= {"c": folder, "admin": folder}
            world = World(client, folder, {"admin": admin, **tokens}, homes)
            yield world
        service.end()


def test_a_job_has_its_tenants_user_and_groups_and_can_gain_no_more(world: World) -> None:
    done = world.run(
        "a", "who", ["sh", "-c", "id -u; id -G; umask; echo $HOME; cat /proc/$$/status"]
    )

    uid, groups, umask, home, *status = done.splitlines()
    assert (uid, set(groups.split()), umask) == (str(ANN), {str(ANN), str(STAFF)}, "0027")
    assert home == str(world.homes["a"])
    assert "NoNewPrivs:\t1" in status
    assert "CapEff:\t0000000000000000" in status


def test_a_script_run_in_a_warm_process_has_given_up_root_too(world: World) -> None:
    script = world.homes["a"] / "mine.py"
    script.write_text("import os\nprint(os.getresuid(), os.getgroups())\nopen('/dev/stdout')\n")
    wait_until(lambda: (world.state / "warm.sock").exists())

    done = world.run("a", "warm", [sys.executable, str(script)])

    assert done.splitlines() == [f"({ANN}, {ANN}, {ANN}) [{STAFF}]"]
    events = (folder_of(world.state, "a:warm", 1) / "events.jsonl").read_text()
    assert '"warm":true' in events


def test_a_job_keeps_checkpoints_that_nobody_else_can_read(world: World) -> None:
    done = world.run("a", "saves", ["sh", "-c", "echo data > $WEFT_CHECKPOINTS/one && echo saved"])

    kept = job_folder(world.state, "a:saves") / "checkpoints"
    assert done == "saved\n"
    assert kept.stat().st_uid == ANN
    other = world.run(
        "b", "reads", ["sh", "-c", f"cat {kept}/one; ls {kept}; ls {world.homes['a']}"]
    )
    assert other.count("Permission denied") == 3


def test_a_job_reads_neither_the_services_files_nor_its_agents(world: World) -> None:
    own = folder_of(world.state, "b:nosy", 1)
    files = [own / "spec.json", own / "events.jsonl", own / "claim.json", own / "rank-0.log"]
    files += [world.state / name for name in ("tokens.json", "events.db", "audit.jsonl")]
    tries = "; ".join(f"cat {file}; echo x >> {file}" for file in files)

    done = world.run(
        "b", "nosy", ["sh", "-c", f"{tries}; ls {world.state}; touch {own}/x; rm -r {own}"]
    )

    assert done.count("Permission denied") >= 2 * len(files) + 3, done
    assert (own / "events.jsonl").exists()


def test_one_tenants_job_cannot_speak_to_anothers_agent(world: World) -> None:
    world.submit("a", "talks", ["sleep", "600"])
    folder = folder_of(world.state, "a:talks", 1)
    path = short_path(folder / "agent.sock")
    wait_until(lambda: world.job("talks")["state"] == "running")
    hello = json.dumps({"type": "hello", "job": "a:talks", "attempt": 1, "rank": 0, "pid": 1})

    assert python_as(ANN, CONNECT, path, hello).startswith('{"type":"welcome"')
    assert python_as(BOB, CONNECT, path, hello) == "closed\n"
    for directory in (folder.parent, folder):
        directory.chmod(0o711)
    Path(path).chmod(0o666)

    assert python_as(BOB, CONNECT, path, hello) == "hung up\n"
    world.client.delete(f"{API}/jobs/talks", headers=world.admin)


def test_only_the_service_is_heard_by_the_warm_server(world: World) -> None:
    path = world.state / "warm.sock"
    wait_until(path.exists)
    assert python_as(ANN, CONNECT, str(path), "/tmp") == "closed\n"
    path.chmod(0o666)

    assert python_as(ANN, CONNECT, str(path), "/tmp") == "hung up\n"
    path.chmod(0o600)


def test_a_checkpoint_folder_that_is_a_link_gives_no_rights(world: World) -> None:
    secret = world.folder / "roots-own"
    secret.mkdir(mode=0o755)
    (world.homes["b"] / "ckpt").symlink_to(secret)

    world.run("b", "linked", ["true"], checkpoint={"dir": "ckpt"})

    assert world.job("linked")["state"] == "failed"
    assert "denied" in str(world.job("linked")["reason"])
    assert list(secret.iterdir()) == []


def test_a_working_directory_of_another_user_is_not_entered(world: World) -> None:
    done = world.run("b", "elsewhere", ["ls"], workdir=str(world.homes["a"]))

    assert world.job("elsewhere")["state"] == "failed"
    assert "Permission denied" in done


def test_ranks_of_another_user_die_with_their_agent(world: World) -> None:
    world.submit("a", "orphan", ["sleep", "600"])
    folder = folder_of(world.state, "a:orphan", 1)
    wait_until(lambda: world.job("orphan")["state"] == "running")
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    pid, began = next(event["ranks"]["0"] for event in events if event["event"] == "started")

    claim = read_json(folder / "claim.json")
    assert claim is not None
    os.kill(claim["pid"], signal.SIGKILL)

    wait_until(lambda: not alive(pid, began))
    world.client.delete(f"{API}/jobs/orphan", headers=world.admin)


def test_a_tenant_without_a_user_runs_nothing(world: World) -> None:
    answer = world.submit("c", "nobody", ["true"])

    assert answer.status_code == 422
    assert "tenant 'c' has no user on this machine" in answer.json()["error"]


def test_a_token_may_name_another_account_than_its_tenant(world: World) -> None:
    body = {"role": "user", "tenant": "c", "name": "cleo", "account": "b"}
    made = world.client.post(f"{API}/tokens", json=body, headers=world.admin)
    world.tokens["cleo"], world.homes["cleo"] = made.json()["token"], world.homes["b"]

    assert world.run("cleo", "by-account", ["id", "-u"]) == f"{BOB}\n"


def test_an_account_that_is_not_there_is_refused(world: World) -> None:
    body = {"role": "user", "tenant": "c", "account": "bb"}

    answer = world.client.post(f"{API}/tokens", json=body, headers=world.admin)

    assert answer.status_code == 404
    assert "did you mean 'b'" in answer.text


def test_health_says_that_jobs_run_as_users(world: World) -> None:
    assert world.client.get("/healthz").json()["isolation"] == "users"
    assert world.client.get(f"{API}/cluster", headers=world.admin).json()["warnings"] == []


def test_where_jobs_run_as_users_nobody_submits_without_a_token() -> None:
    with open_folder() as folder:
        (folder / "users.toml").write_text(USERS)
        settings = Settings(
            "local:warm=false", folder / "state", port=0, users=folder / "users.toml"
        )
        service = Running(settings)
        with httpx.Client(
            base_url=service.begin(), timeout=LIMIT_S, trust_env=False, verify=False
        ) as client:
            answer = client.post(f"{API}/jobs", json={"command": ["true"], "tenant": "a"})
            warnings = client.get(f"{API}/cluster").json()["warnings"]
        service.end()

    assert answer.status_code == 403
    assert [warning.partition(":")[0] for warning in warnings] == ["no tokens"]
