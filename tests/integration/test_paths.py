"""What a newcomer and an ML engineer do on their first day, at a real terminal."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.person import person
from tests.integration.serving import API, fetch
from tests.ports import free_port
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0


def typed(url: str, cwd: Path, *words: str, code: int = 0) -> str:
    """What a command shows on an 80-column terminal."""
    with person(url, *words, cwd=cwd) as someone:
        assert someone.leaves() == code, someone.seen
        someone.drain()
        return someone.seen


def job(url: str, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(
        f"{url}{API}/jobs/{name}", trust_env=False, verify=False
    ).json()
    return answer


def wait(url: str, name: str, *states: str) -> dict[str, Any]:
    end = time.monotonic() + LIMIT_S
    while (answer := job(url, name)).get("state") not in states:
        assert time.monotonic() < end, answer
        time.sleep(0.1)
    return answer


@pytest.mark.slow
def test_the_newcomers_path(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    serve = ("serve", "--port", str(port), "--engine", "local:cpu=true,slots=1,warm=false")
    with person(url, *serve, cwd=tmp_path) as service:
        service.sees(re.escape(url))
        hello = "import time; print('hello', flush=True); time.sleep(600)"
        assert "submitted hello-" in typed(
            url, tmp_path, "submit", "--name", "hello", "--", "python", "-c", hello
        )
        wait(url, "hello", "running")
        assert "submitted second-" in typed(
            url, tmp_path, "submit", "--name", "second", "--", "python", "-c", "print('me too')"
        )

        listed = typed(url, tmp_path, "jobs")
        assert re.search(r"hello-\w+ +running", listed)
        assert re.search(r"second-\w+ +pending", listed)
        assert "hello\r\n" in typed(url, tmp_path, "logs", "hello")
        why = typed(url, tmp_path, "explain", "second")
        assert "waits for 1" in why
        assert "hello" in why
        assert "cancelled hello-" in typed(url, tmp_path, "cancel", "hello")
        wait(url, "second", "succeeded")
        assert "me too" in typed(url, tmp_path, "logs", "@last")
        service.type("\x03")
        assert service.leaves() == 0
        assert "Traceback" not in service.seen


@pytest.mark.slow
def test_the_ml_engineers_path(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    shutil.copytree(ROOT / "examples" / "train", tmp_path / "train")
    (tmp_path / "page.txt").write_text("the board")
    serve = ("serve", "--port", str(port), "--engine", "local:cpu=true,slots=2,warm=false")
    with person(url, *serve, cwd=tmp_path) as service:
        service.sees(re.escape(url))
        _train(url, tmp_path)
        _sweep(url, tmp_path)
        _look_inside(url, tmp_path)
        _stay_in_time(url, tmp_path)
        service.type("\x03")
        assert service.leaves() == 0
        assert "Traceback" not in service.seen


def _train(url: str, here: Path) -> None:
    """An elastic script, and what follows it."""
    typed(url, here, "submit", "train/job.yaml", "--name", "fit", "--env", "EPOCHS=2")
    done = ("submit", "--name", "report", "--gpus", "0", "--after-ok", "fit", "--", "echo", "done")
    typed(url, here, *done)
    assert job(url, "report")["reason"].startswith("waits for fit-")
    wait(url, "fit", "succeeded")
    wait(url, "report", "succeeded")
    assert "test error" in typed(url, here, "logs", "fit")


def _sweep(url: str, here: Path) -> None:
    """Four settings two at a time, one line in the list."""
    words = (
        "--sweep",
        "lr=0.1,0.01",
        "--sweep",
        "seed=1,2",
        "--max-parallel",
        "2",
        "--name",
        "tune",
    )
    typed(url, here, "submit", *words, "--", "sh", "-c", "echo lr=${lr} seed=$WEFT_SWEEP_SEED")
    typed(url, here, "submit", "--name", "best", "--after-any", "tune", "--", "echo", "compared")
    wait(url, "best", "succeeded")
    lines = [line for line in typed(url, here, "jobs").splitlines() if "tune-" in line]
    assert len(lines) == 1
    assert "4 jobs: 4 succeeded" in lines[0]
    sweep = lines[0].split()[0]
    assert "lr=0.01 seed=2" in typed(url, here, "logs", f"{sweep}.3")


def _look_inside(url: str, here: Path) -> None:
    """A shell, and a port of a job."""
    with person(url, "shell", cwd=here) as someone:
        someone.type("echo in the sh''ell on $WEFT_KIND; exit 4\n")
        someone.sees(r"in the shell on cpu")
        assert someone.leaves() == 4
    port, local = free_port(), free_port()
    board = ("--name", "board", "--gpus", "0", "--", sys.executable, "-m", "http.server", str(port))
    typed(url, here, "submit", *board)
    wait(url, "board", "running")
    with person(url, "forward", "board", str(port), "--local", str(local), cwd=here) as someone:
        someone.sees(rf":{local} is port {port}")
        wait_until(lambda: fetch(f"http://127.0.0.1:{local}/page.txt") == "the board")
        someone.type("\x03")
        assert someone.leaves() == 0
    typed(url, here, "cancel", "board")


def _stay_in_time(url: str, here: Path) -> None:
    """A job that takes too long ends, and its deadline is said to be missed."""
    words = ("--name", "slow", "--time-limit", "4s", "--deadline", "1s", "--", "sleep", "600")
    typed(url, here, "submit", *words)
    answer = wait(url, "slow", "failed")
    assert "time limit of 4 s" in answer["reason"]
    assert answer["deadline_missed"]
    done = subprocess.run(
        [sys.executable, "-m", "weft", "job", "slow", "--json"],
        env={"WEFT_URL": url, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["deadline_missed"]
