"""Shells and forwarded ports through the real service, with real terminals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.person import person
from tests.integration.serving import API, bearer, fetch, get, serving, submit, token
from tests.ports import free_port
from tests.waiting import LIMIT_S, wait_until
from weft.wire.processes import start_time

ENGINE = "local:slots=2,cpu=true,warm=false"
FLEET = "processes:nodes=1,slots=2"


def test_a_shell_has_a_terminal_a_size_ctrl_c_and_an_exit_code(tmp_path: Path) -> None:
    with (
        serving(ENGINE, tmp_path / "state") as client,
        person(client, "run", "--pty", "--", "bash", "--norc", cwd=tmp_path) as someone,
    ):
        someone.type("tty; echo size $(stty size); echo in $PWD on $WEFT_DEVICES.\n")
        someone.sees(r"/dev/pts/\d+")
        someone.sees(r"size 24 80")
        someone.sees(rf"in {tmp_path} on \d")
        someone.resize(40, 100)
        someone.type("until stty size | grep '40 100'; do sleep 0.1; done; echo res''ized\n")
        someone.sees(r"resized")
        someone.type("sed -u s/^/heard:/\n")
        someone.type("hello\n")
        someone.sees(r"heard:hello")
        someone.type("\x03")
        someone.sees(r"bash-\S+[#$] ")
        someone.type("echo back=$?\n")
        someone.sees(r"back=130")
        someone.type("exit 7\n")

        assert someone.leaves() == 7
        wait_until(lambda: get(client, "/jobs")["jobs"][0]["state"] == "failed")
        job = get(client, "/jobs")["jobs"][0]
        assert "exit code 7" in job["reason"]
        assert "back=130" in client.get(f"{API}/jobs/{job['id']}/logs").text


def test_a_shell_can_be_left_and_gone_back_to(tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path / "state") as client:
        with person(client, "shell", "--name", "mine", cwd=tmp_path) as someone:
            someone.type("x=kept; echo rea''dy\n")
            someone.sees(r"ready\r\n")
        with person(client, "shell", "mine", cwd=tmp_path) as someone:
            someone.type("echo $x again\n")
            someone.sees(r"kept again")
            someone.type("exit\n")

            assert someone.leaves() == 0


@pytest.mark.parametrize("shell", [("sh",), ("bash", "-c", "sleep 1; exec bash --norc")])
def test_what_is_piped_in_is_typed_and_its_end_ends_the_shell(
    shell: tuple[str, ...], tmp_path: Path
) -> None:
    with serving(ENGINE, tmp_path / "state") as client:
        ran = subprocess.run(
            [sys.executable, "-m", "weft", "run", "--pty", "-q", "--", *shell],
            input=b"echo $((6 * 7))\n",
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "WEFT_URL": str(client.base_url).rstrip("/")},
            timeout=LIMIT_S,
        )

        assert b"42" in ran.stdout
        assert ran.returncode == 0, ran.stderr


def test_a_file_is_typed_into_a_shell_as_a_pipe_is(tmp_path: Path) -> None:
    (tmp_path / "typed").write_text("exit 9\n")
    with serving(ENGINE, tmp_path / "state") as client, (tmp_path / "typed").open() as typed:
        ran = subprocess.run(
            [sys.executable, "-m", "weft", "shell"],
            stdin=typed,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "WEFT_URL": str(client.base_url).rstrip("/")},
            timeout=LIMIT_S,
        )

        assert ran.returncode == 9, ran.stderr


def test_a_session_that_nobody_uses_ends_and_says_why(tmp_path: Path) -> None:
    words = ("shell", "--idle-timeout", "3s")
    with (
        serving(ENGINE, tmp_path / "state") as client,
        person(client, *words, cwd=tmp_path) as someone,
    ):
        someone.sees(r"weft: idle; this session ends in \d s")

        assert someone.leaves() != 0
        wait_until(lambda: get(client, "/jobs")["jobs"][0]["state"] == "failed")
        job = get(client, "/jobs")["jobs"][0]
        assert "nothing was typed or printed in its session for 3 s" in job["reason"]
        assert job["attempt"] == 1


def test_a_session_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    with (
        serving(ENGINE, tmp_path / "state") as client,
        person(client, "shell", cwd=tmp_path) as someone,
    ):
        someone.type("echo rea''dy\n")
        someone.sees(r"ready\r\n")
        client.delete(f"{API}/jobs/{get(client, '/jobs')['jobs'][0]['id']}")

        assert someone.leaves() != 0


@pytest.mark.parametrize("engine", [ENGINE, FLEET])
def test_only_its_owner_reaches_a_session(engine: str, tmp_path: Path) -> None:
    with serving(engine, tmp_path / "state") as client:
        admin = token(client, "admin")
        owner, other = (token(client, "user", name, by=admin) for name in ("a", "b"))
        body = {"command": ["bash"], "pty": True, "workdir": str(tmp_path), "name": "mine"}
        job = client.post(f"{API}/jobs", json=body, headers=bearer(owner)).json()["id"]
        path = f"{API}/jobs/{job}/terminal"

        assert client.post(path).status_code == 401
        assert client.post(path, headers=bearer(other)).status_code == 404
        assert client.post(f"{API}/jobs/{job}/ports/22", headers=bearer(owner)).status_code == 409
        with person(client, "shell", job, cwd=tmp_path, secret=owner) as someone:
            someone.type("exit 3\n")
            assert someone.leaves() == 3


@pytest.mark.parametrize("engine", [ENGINE, FLEET])
def test_a_shell_beside_a_job_has_its_surroundings_and_ends_with_it(
    engine: str, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    body = {
        "command": ["sh", "-c", "until [ -e done ]; do sleep 0.1; done"],
        "workdir": str(tmp_path / "work"),
        "env": {"API_TOKEN": "of-the-job", "SHELL": "/bin/sh"},
        "gpus": 2,
    }
    with serving(engine, tmp_path / "state") as client:
        job = client.post(f"{API}/jobs", json=body).json()["id"]
        with person(client, "shell", job, cwd=tmp_path) as someone:
            someone.type("echo in $PWD on $WEFT_DEVICES for [$WEFT_JOB] with $API_TOKEN.\n")
            someone.sees(rf"in {tmp_path}/work on 0,1 for \[\] with of-the-job\.")
            someone.type("exit 5\n")
            assert someone.leaves() == 5
        assert get(client, f"/jobs/{job}")["state"] == "running"
        with person(client, "shell", job, cwd=tmp_path) as someone:
            someone.type("echo pid $$.; sleep 1000\n")
            pid = int(someone.sees(r"pid \d+\.")[4:-1])
            (tmp_path / "work" / "done").touch()

            assert someone.leaves() == 0
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "succeeded")
        wait_until(lambda: start_time(pid) is None)
        assert "in /" not in client.get(f"{API}/jobs/{job}/logs").text


def test_a_shell_beside_a_job_ends_with_its_connection_and_is_its_owners(tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path / "state") as client:
        admin = token(client, "admin")
        owner, other = (token(client, "user", name, by=admin) for name in ("a", "b"))
        body = {"command": ["sleep", "1000"], "workdir": str(tmp_path)}
        job = client.post(f"{API}/jobs", json=body, headers=bearer(owner)).json()["id"]
        path = f"{API}/jobs/{job}/shell"

        assert client.post(path).status_code == 401
        assert client.post(path, headers=bearer(other)).status_code == 404
        with person(client, "shell", job, cwd=tmp_path, secret=owner) as someone:
            someone.type("echo pid $$.\n")
            pid = int(someone.sees(r"pid \d+\.")[4:-1])
        wait_until(lambda: start_time(pid) is None)


def test_a_job_without_a_terminal_says_so(tmp_path: Path) -> None:
    with serving("simulated:cluster=1x1:a100,speed=1") as client:
        job = submit(client)

        answer = client.post(f"{API}/jobs/{job}/terminal")

        assert answer.status_code == 409
        assert "no terminals" in answer.json()["error"]


SERVER = (
    "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={port}, bind='127.0.0.1')"
)


@pytest.mark.parametrize("engine", [ENGINE, FLEET])
def test_a_port_of_a_job_is_opened_here(engine: str, tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("from the job " * 50_000)
    port, here = free_port(), free_port()
    with serving(engine, tmp_path / "state") as client:
        script = SERVER.format(port=port)
        job = submit(client, command=[sys.executable, "-c", script], workdir=str(tmp_path))
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "running")
        words = ("forward", job, str(port), "--local", str(here))
        with person(client, *words, cwd=tmp_path) as someone:
            someone.sees(rf"127\.0\.0\.1:{here} is")
            url = f"http://127.0.0.1:{here}/page.txt"

            wait_until(lambda: fetch(url) == "from the job " * 50_000)
            someone.type("\x03")

            assert someone.leaves() == 0
        with person(client, "forward", job, str(port), cwd=tmp_path) as someone:
            other = someone.sees(r"127\.0\.0\.1:\d+ is").split(":")[1].split()[0]
            assert int(other) != port  # which the job has, on this machine
            wait_until(lambda: fetch(f"http://127.0.0.1:{other}/page.txt") != "")
        client.delete(f"{API}/jobs/{job}")


def test_a_port_of_somebody_else_is_not(tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path / "state") as client, socket.create_server(("127.0.0.1", 0)) as s:
        job = submit(client, command=["sleep", "60"], workdir=str(tmp_path))
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "running")

        answer = client.post(f"{API}/jobs/{job}/ports/{s.getsockname()[1]}")

        assert answer.status_code == 409
        assert "no process of job" in answer.json()["error"]
        client.delete(f"{API}/jobs/{job}")


@pytest.mark.parametrize("how", [signal.SIGKILL])
def test_a_shell_goes_on_when_its_person_is_killed(how: signal.Signals, tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path / "state") as client:
        with person(client, "shell", "--name", "mine", cwd=tmp_path) as someone:
            someone.type("echo rea''dy\n")
            someone.sees(r"ready\r\n")
            os.kill(someone.process.pid, how)

        assert get(client, "/jobs")["jobs"][0]["state"] == "running"
        client.delete(f"{API}/jobs/mine")
