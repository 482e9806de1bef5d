"""The command line against a real service with real processes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.ports import free_port
from tests.waiting import LIMIT_S
from weft.cli.commands.cluster.demo import end_all
from weft.cli.connect.client import ServiceClient
from weft.cli.connect.own_service import own_service
from weft.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ("--engine", "local:cpu=true,slots=2,warm=false", "--policy", "fifo")
PYTHON = sys.executable
WAIT = [PYTHON, "-c", "import time; print('begun', flush=True); time.sleep(600)"]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def service(state: Path) -> Iterator[ServiceClient]:
    with own_service(state, free_port(), *ENGINE) as client:
        yield client


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PATH", f"{Path(PYTHON).parent}:{os.environ['PATH']}")


@pytest.fixture
def known(
    service: ServiceClient, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ServiceClient]:
    monkeypatch.setenv("WEFT_URL", service.url)
    yield service
    end_all(service, state)


def weft(*args: str, code: int = 0) -> Result:
    ran = CliRunner().invoke(cli, list(args))
    assert ran.exit_code == code, ran.output
    return ran


def answer_of(*args: str) -> dict[str, object]:
    body: dict[str, object] = json.loads(weft(*args, "--json").stdout)
    return body


def until(job: str, *states: str, seconds: float = 120.0) -> dict[str, object]:
    deadline = time.monotonic() + seconds
    while (answer := answer_of("job", job))["state"] not in states:
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def until_named(pid: object, name: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while (text := Path(f"/proc/{pid}/comm").read_text()) != f"{name}\n":
        assert time.monotonic() < deadline, text
        time.sleep(0.05)


def test_run_shows_the_output_of_a_job_in_this_folder_and_leaves_with_its_code(
    known: ServiceClient,
) -> None:
    Path("train.py").write_text(
        "import os, sys\nprint(os.getcwd(), sys.argv[1:], os.environ['A'])\nsys.exit(7)\n"
    )

    ran = weft("run", "--env", "A=b c", "--", "python", "train.py", "--lr", "$HOME", code=7)

    assert ran.stdout == f"{Path.cwd()} ['--lr', '$HOME'] b c\n"
    assert re.search(r"train-\w+: failed: rank 0 ended with exit code 7", ran.stderr)


def test_a_job_file_is_queued_followed_and_accounted_for(known: ServiceClient) -> None:
    Path("job.yaml").write_text(f"command: [{PYTHON}, -c, \"print('from a file')\"]\ntenant: t1\n")

    job = weft("submit", "job.yaml", "-q").stdout.strip()
    weft("logs", "-f", job)

    assert until(job, "succeeded")["name"] == "job"
    assert weft("logs", job).stdout == "from a file\n"
    assert job in weft("jobs", "--all").stdout
    assert job in weft("jobs", "--tenant", "t1", "--state", "succeeded").stdout
    assert "Finished" in weft("job", job, "--events").stdout
    assert re.search(r"^t1 +1 ", weft("accounting").stdout, re.MULTILINE)
    assert job in weft("accounting", "--csv").stdout
    [by_kind] = json.loads(weft("accounting", "--by", "kind", "--json").stdout)["groups"]
    assert (by_kind["kind"], by_kind["wasted_gpu_seconds"] >= 0.0) == ("cpu", True)
    assert re.search(r"ago.* t1", weft("accounting", "--over-time").stdout)
    assert "no job was there" in weft("accounting", "--month", "2020-01").stdout
    assert "no job was submitted" in weft("accounting", "--month", "2020-01", "--by", "user").stdout


def test_each_rank_has_its_own_output(known: ServiceClient) -> None:
    script = "import os; print('I am', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"

    each = ("--gpus", "2", "--processes", "per-gpu", "--name", "pair")
    ran = weft("run", *each, "--", PYTHON, "-c", script)
    jobs = json.loads(weft("jobs", "--json").stdout)["jobs"]
    [job] = [row for row in jobs if row["name"] == "pair"]

    assert ran.stdout == "I am 0 of 2\n"
    assert weft("logs", job["id"], "--rank", "1").stdout == "I am 1 of 2\n"


def test_the_same_id_twice_is_one_job(known: ServiceClient) -> None:
    once = ("submit", "--id", "only-one", "-q", "--", PYTHON, "-c", "pass")

    assert weft(*once).stdout == weft(*once).stdout == "only-one\n"


def test_an_unknown_field_is_answered_with_file_and_closest(known: ServiceClient) -> None:
    Path("job.yaml").write_text("command: [x]\ngpu: 2\n")

    ran = weft("submit", "job.yaml", code=2)

    assert "error: job.yaml: unknown field 'gpu'; did you mean 'gpus'?" in ran.stderr


def test_a_job_that_can_never_run_is_refused_with_a_hint(known: ServiceClient) -> None:
    ran = weft("run", "--gpus", "64", "--", "true", code=2)

    assert "64 CPU slots" in ran.stderr
    assert "ask for at most 2" in ran.stderr


def test_who_waits_is_told_why_and_what_would_start_it(known: ServiceClient) -> None:
    first = weft("submit", "--gpus", "2", "--name", "first", "-q", "--", *WAIT).stdout.strip()
    until(first, "running")
    second = weft("submit", "--gpus", "2", "--name", "second", "-q", "--", *WAIT).stdout.strip()

    why = weft("explain", second).stdout
    top = weft("top", "--once").stdout

    assert "is pending" in why
    assert "first (2) holds them" in why
    assert re.search(r"^\S+ +first +first", top, re.MULTILINE)
    assert second in top[top.index("queue") :]
    assert "would wait" in weft("plan", "--", "true").stdout
    assert first in weft("cancel", first, second).stdout
    until(first, "cancelled")
    assert "would start now" in weft("plan", "--", "true").stdout


def test_a_drained_node_takes_no_jobs_until_it_is_given_back(known: ServiceClient) -> None:
    [node] = json.loads(weft("nodes", "--json").stdout)["nodes"]

    weft("drain", node["id"])
    drained = weft("nodes").stdout
    job = weft("run", "-d", "--", PYTHON, "-c", "pass").stdout.strip()
    waits = answer_of("job", job)["state"]
    weft("undrain", node["id"])

    assert "drained" in drained
    assert waits == "pending"
    until(job, "succeeded")


def test_policies_change_while_the_service_runs(known: ServiceClient) -> None:
    assert weft("policy", "las").stdout == "las decides from now on\n"
    assert weft("policy").stdout == "las\n"
    assert "did you mean 'fifo'?" in weft("policy", "fifi", code=2).stderr
    weft("policy", "fifo")


def test_the_guide_does_what_it_says(known: ServiceClient) -> None:
    page = (ROOT / "docs" / "how-to" / "run-jobs.md").read_text()
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for name, text in files:
        Path(name).write_text(text)
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines()]

    for command in commands:
        assert command.startswith("weft ")
        weft(*shlex.split(command)[1:])

    assert len(commands) > 10
    weft("policy", "fifo")


def test_every_field_of_a_job_file_is_in_the_guide() -> None:
    from weft.service.requests.job_file import JobFile

    page = (ROOT / "docs" / "how-to" / "job-files.md").read_text()

    assert not [name for name in JobFile.model_fields if f"`{name}`" not in page]


def test_ctrl_c_leaves_the_job_alone_where_nobody_can_be_asked(known: ServiceClient) -> None:
    run = subprocess.Popen(
        [PYTHON, "-m", "weft", "run", "--", *WAIT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"

    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=LIMIT_S)

    assert run.returncode == 130
    match = re.search(r"(\S+) keeps running", errors)
    assert match, errors
    assert answer_of("job", match[1])["state"] == "running"
    weft("cancel", match[1])


def test_ctrl_c_asks_a_person_and_cancels(known: ServiceClient) -> None:
    ours, theirs = pty.openpty()
    run = subprocess.Popen(
        [PYTHON, "-m", "weft", "run", "--", *WAIT],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    seen = read_until(ours, b"begun")

    run.send_signal(signal.SIGINT)
    seen += read_until(ours, b"[y/N]")
    os.write(ours, b"y\n")
    seen += read_until(ours, b"cancelled")

    assert run.wait(LIMIT_S) == 130
    os.close(ours)
    os.close(theirs)
    match = re.search(rb"cancel (\S+)\?", seen)
    assert match, seen
    until(match[1].decode(), "cancelled")


def read_until(terminal: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(terminal, 1024)
    return seen


def test_a_followed_job_survives_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("WEFT_URL", f"http://127.0.0.1:{port}")
    script = "import time\nfor i in range(30): print(i, flush=True); time.sleep(0.1)"
    with own_service(tmp_path / "state", port, *ENGINE):
        run = subprocess.Popen(
            [PYTHON, "-m", "weft", "run", "--", PYTHON, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert run.stdout is not None
        assert run.stdout.readline() == "0\n"

    with run, own_service(tmp_path / "state", port, *ENGINE):
        assert run.stderr is not None
        rest, errors = run.stdout.read(), run.stderr.read()

    assert run.returncode == 0, errors
    assert rest == "".join(f"{i}\n" for i in range(1, 30))
    assert "the service does not answer; waiting for it" in errors


def test_tokens_are_made_used_and_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_service(tmp_path / "state", free_port(), *ENGINE) as client:
        monkeypatch.setenv("WEFT_URL", client.url)
        assert "everyone on this machine is an admin" in weft("token", "list").stdout
        admin = weft("token", "create", "--role", "admin", "-q").stdout.strip()

        assert "a token is needed" in weft("jobs", code=2).stderr
        monkeypatch.setenv("WEFT_TOKEN", admin)
        user = weft("token", "create", "vision", "-q").stdout.strip()
        hidden = weft("submit", "-q", "--", PYTHON, "-c", "pass").stdout.strip()
        listed = json.loads(weft("token", "list", "--json").stdout)["tokens"]
        assert "vision" in weft("token", "list").stdout
        monkeypatch.setenv("WEFT_TOKEN", user)
        weft("job", hidden, code=2)
        assert "admin" in weft("token", "list", code=2).stderr

        monkeypatch.setenv("WEFT_TOKEN", admin)
        weft("token", "revoke", *(token["id"] for token in listed if token["tenant"] == "vision"))
        monkeypatch.setenv("WEFT_TOKEN", user)
        assert "token" in weft("jobs", code=2).stderr


def test_quotas_are_listed_set_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own_service(tmp_path / "state", free_port(), *ENGINE) as client:
        monkeypatch.setenv("WEFT_URL", client.url)
        assert "no rules" in weft("quota", "list").stdout

        weft("quota", "set", "vision", "--gpus", "8", "--weight", "2")
        weft("quota", "set", "vision@a100", "--gpus", "4")
        shown = weft("quota", "set", "vision", "--guaranteed", "3").stdout

        rules = {
            "limits": {"vision": 8.0, "vision@a100": 4.0},
            "weights": {"vision": 2.0},
            "guaranteed": {"vision": 3.0},
        }
        none: dict[str, object] = {"own": {}, "parents": {}, "half_life_s": None, "min_run_s": None}
        assert answer_of("quota", "list") == {**rules, **none, "held": {}}
        assert re.search(r"^vision +8 +2 +3\b", shown, re.MULTILINE)
        assert "nothing to set" in weft("quota", "set", "vision", code=2).stderr
        assert "one kind" in weft("quota", "set", "a@t4", "--weight", "2", code=2).stderr
        assert "weights.vision" in weft("quota", "set", "vision", "--weight", "0", code=2).stderr
        assert "run for 5 min" in weft("quota", "set", "vision", "--own", "2").stdout
        assert "run for 10 s; " in weft("quota", "lending", "--min-run", "10s").stdout
        assert "run for 10 s; " in weft("quota", "lending").stdout
        weft("quota", "remove", "vision")
        assert answer_of("quota", "list")["limits"] == {"vision@a100": 4.0}
        assert "no rules for 'vision'" in weft("quota", "remove", "vision", code=2).stderr


def test_webhooks_are_listed_added_and_removed(known: ServiceClient) -> None:
    assert "no webhooks" in weft("webhook", "list").stdout

    made = answer_of("webhook", "add", "http://127.0.0.1:9/x", "--tenant", "a", "-s", "failed")

    assert len(str(made["secret"])) >= 16
    (listed,) = json.loads(weft("webhook", "list", "--json").stdout)["webhooks"]
    assert (listed["url"], listed["tenant"]) == ("http://127.0.0.1:9/x", "a")
    assert listed["states"] == ["failed"]
    assert "secret" not in listed
    assert "http://127.0.0.1:9/x" in weft("webhook", "list").stdout
    assert "not an http" in weft("webhook", "add", "ftp://127.0.0.1/", code=2).stderr
    assert weft("webhook", "remove", str(made["id"])).stdout.startswith("removed")
    assert "weft webhook list" in weft("webhook", "remove", "nobody", code=2).stderr


def test_a_demonstration_that_is_ended_takes_its_service_and_jobs_along(tmp_path: Path) -> None:
    with subprocess.Popen(
        [PYTHON, "-m", "weft", "demo", "--port", str(free_port())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as demo:
        assert demo.stdout is not None
        output = next(line for line in demo.stdout if "API: http" in line)
        demo.terminate()
        output += demo.stdout.read()

    assert demo.returncode == 0, output
    assert "leaving" in output
    assert not list(tmp_path.glob("weft-demo-*"))
    with pytest.raises(OSError):
        urllib.request.urlopen(output.split("API: ")[1].split()[0] + "/healthz", timeout=5)


@pytest.mark.slow
def test_the_demonstration_runs_to_its_end_and_leaves_its_page(tmp_path: Path) -> None:
    ran = subprocess.run(
        [PYTHON, "-m", "weft", "demo", "--keep", "--port", str(free_port())],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 jobs done" in ran.stdout
    assert "API: http://127.0.0.1:" in ran.stdout
    assert re.search(r"running on 2 cpu", ran.stdout)
    assert re.search(r"running on 1 cpu x 0.5", ran.stdout)
    address = ran.stdout.strip().rpartition("the page: ")[2]
    with urllib.request.urlopen(f"{address}/api/v1/jobs", timeout=LIMIT_S) as answer:
        assert len(json.load(answer)["jobs"]) >= 6  # it goes on
    left = re.search(r"`kill (\d+)` ends both", ran.stdout)
    assert left is not None
    os.kill(int(left[1]), signal.SIGTERM)


def test_jobs_are_named_by_what_people_remember(known: ServiceClient) -> None:
    for ident, name in (("sweep-a1", "first"), ("sweep-b2", "second"), ("alone", "third")):
        weft("submit", "--id", ident, "--name", name, "--", "sleep", "600")

    assert answer_of("job", "second")["id"] == "sweep-b2"
    assert answer_of("job", "al")["id"] == "alone"
    assert answer_of("job", "@last")["id"] == "alone"
    assert "say which: sweep-a1, sweep-b2" in weft("job", "sweep", code=2).stderr
    assert "add --yes" in weft("cancel", "sweep-*", code=2).stderr
    assert weft("cancel", "sweep-*", "--yes").stdout == "cancelled sweep-a1, sweep-b2\n"
    assert weft("cancel", "@last").stdout == "cancelled alone\n"


def test_the_log_of_a_job_that_was_tried_again_has_a_mark_before_each_attempt(
    known: ServiceClient,
) -> None:
    weft(
        "submit",
        "--id",
        "again",
        "--retries",
        "1",
        "--",
        "sh",
        "-c",
        "echo try $WEFT_ATTEMPT; false",
    )
    until("again", "failed")

    shown = weft("logs", "again").stdout

    assert shown == "--- attempt 1 ---\ntry 1\n--- attempt 2 ---\ntry 2\n"
    assert weft("logs", "aga", "--attempt", "2").stdout == "try 2\n"


def test_processes_have_the_jobs_name_and_their_pids_are_shown(known: ServiceClient) -> None:
    Path("warm.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    weft("submit", "--id", "cold-1", "--name", "my-sweep", "--", "sh", "-c", "sleep 600; true")
    weft("submit", "--id", "warm-1", "--name", "my-train", "--", PYTHON, "warm.py")
    for job, name in (("cold-1", "my-sweep"), ("warm-1", "my-train")):
        until(job, "running")

        pids = answer_of("job", job)["pids"]

        assert isinstance(pids, list)
        (pid,) = pids

        # A process is told of before it takes the name of its job.
        until_named(pid, name)
        assert f"pids {pid}" in " ".join(weft("job", job).stdout.split())
        weft("cancel", job)


def test_a_command_waits_for_a_service_that_is_just_being_started(tmp_path: Path) -> None:
    port = str(free_port())
    weft = [sys.executable, "-m", "weft"]
    started = [*weft, "serve", "--engine", "simulated:cluster=1x1:a100", "--port", port]
    with subprocess.Popen(started, cwd=tmp_path, stdout=subprocess.DEVNULL) as service:
        try:
            env = {**os.environ, "WEFT_URL": f"http://127.0.0.1:{port}"}
            done = subprocess.run([*weft, "jobs"], env=env, capture_output=True, text=True)
        finally:
            service.terminate()

    assert done.returncode == 0, done.stderr
    assert "no jobs" in done.stdout
