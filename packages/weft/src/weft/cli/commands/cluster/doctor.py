"""`weft doctor`: what a person would look at first when something is wrong, a line each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from weft.cli.connect.client import RequestRefused, ServiceClient, ServiceUnreachable
from weft.cli.connect.own_service import is_free
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.core.errors import WeftError
from weft.core.paths import expand
from weft.frozen import frozen
from weft.native import why_not
from weft.plural import say_gpus
from weft.service.responses.answers import ClusterAnswer, Health, Needs, Nodes, Readiness
from weft_client.own_state import state_folder

LOW_GB, FULL_GB = 10.0, 1.0
CLOCK_S = 5.0
QUERY_S = 20.0
Verdict = Literal["ok", "note", "bad"]


@frozen
class DoctorFinding:
    """Result of one check: its subject, a verdict and the details."""

    what: str
    verdict: Verdict
    text: str


def doctor(
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the service's state, if it is on this machine; default: as `weft "
            "serve` chooses it."
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Check this machine and the service, one line per check.

    Ports, rights, GPU driver, MPS, live resize, checkpoints folder, clock, disk, engine and
    compiled code. Exits with 1 if something is bad.
    """
    with user_errors():
        client = ServiceClient()
        findings = [
            *check_service(client),
            *check_folders(state or state_folder()),
            *check_gpus(),
            *check_live_resize(),
            check_compiled(),
        ]
    if as_json:
        print_json({"findings": findings})
    else:
        marks = {"ok": "ok  ", "note": "note", "bad": "BAD "}
        for finding in findings:
            console().print(
                f"{marks[finding.verdict]}  {finding.what:<12} {finding.text}", soft_wrap=True
            )
    raise typer.Exit(1 if any(finding.verdict == "bad" for finding in findings) else 0)


def check_service(client: ServiceClient) -> Iterator[DoctorFinding]:
    """Check that the service answers, its own checks, and that its clock agrees with ours."""
    try:
        health = client.health(Health, "/healthz")
    except ServiceUnreachable:
        yield _port(client.url)
        return
    yield DoctorFinding("service", "ok", f"{client.url} answers: policy {health.policy}")
    try:
        ready = client.health(Readiness, "/health/ready")
        for check in ready.checks:
            text = check.message or check.said or "well"  # an older service has `said` alone
            yield DoctorFinding(check.part, "ok" if check.ok else "bad", text)
    except WeftError as error:
        yield DoctorFinding("readiness", "bad", error.what)
    try:
        cluster = client.get(ClusterAnswer, "/cluster")
        nodes = client.get(Nodes, "/nodes").nodes
    except RequestRefused as error:
        yield DoctorFinding("token", "note", f"{error.what}; {error.hint}")
        return
    if not cluster.engine.startswith("simulated"):  # which has a time of its own
        late = abs(cluster.now - time.time())
        text = f"{late:.1f} s from the service's"
        yield DoctorFinding("clock", "ok" if late < CLOCK_S else "bad", text)
    down = [node.id for node in nodes if node.state != "up"]
    text = f"{len(nodes) - len(down)} of {len(nodes)} up"
    text += f"; not: {', '.join(down)}" if down else ""
    yield DoctorFinding("nodes", "note" if down else "ok", f"{health.engine}: {text}")
    with suppress(RequestRefused):  # an older service
        for need in client.get(Needs, "/needs").needs:
            if need.kind != "service":  # its parts are above
                yield DoctorFinding(need.kind, "note", f"{need.text}. {need.step}")


def _port(url: str) -> DoctorFinding:
    """Nothing answers there: whether a service could be started."""
    port = urlsplit(url).port or 80
    if is_free(port):
        text = f"no service answers at {url}; port {port} is free for `weft serve`"
        return DoctorFinding("service", "bad", text)
    return DoctorFinding(
        "service", "bad", f"{url} is used by another program, not by a Weft service"
    )


def check_folders(state: Path) -> Iterator[DoctorFinding]:
    """Rights and room of the state and of checkpoints."""
    if not state.exists():
        yield DoctorFinding("state", "note", f"{state} is not on this machine")
        yield _room("disk", Path())
        return
    mode = state.stat().st_mode & 0o077
    open_to = "others may read it" if mode else "private"
    yield DoctorFinding("state", "note" if mode else "ok", f"{state}, {open_to}")
    checkpoints = state / "checkpoints"
    folder = checkpoints if checkpoints.exists() else state
    written = os.access(folder, os.W_OK | os.X_OK)
    text = f"{folder} can{'' if written else 'not'} be written"
    yield DoctorFinding("checkpoints", "ok" if written else "bad", text)
    yield _room("disk", state)


def _room(what: str, folder: Path) -> DoctorFinding:
    free_gb = shutil.disk_usage(folder).free / 1e9
    verdict: Verdict = "bad" if free_gb < FULL_GB else "note" if free_gb < LOW_GB else "ok"
    return DoctorFinding(what, verdict, f"{free_gb:.0f} GB free at {folder.absolute()}")


def check_compiled() -> DoctorFinding:
    """Check that the compiled parts of Weft are in use."""
    if why_not:
        return DoctorFinding("compiled", "note", f"all of Weft runs in Python, slower: {why_not}")
    return DoctorFinding("compiled", "ok", "large clusters and simulations use compiled code")


def check_live_resize() -> Iterator[DoctorFinding]:
    """Outcomes of the self-tests that jobs of `weft_train` ran here before they resize live."""
    named = os.environ.get("XDG_CACHE_HOME")
    cache = Path(named) if named else expand("~/.cache")
    for kept in sorted(cache.glob("weft/live-resize/*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            tried = json.loads(kept.read_text())
            verdict: Verdict = "note" if tried["why"] else "ok"
            text = f"not with {tried['of']}: {tried['why']}" if tried["why"] else tried["of"]
            yield DoctorFinding("live resize", verdict, text)


def check_gpus(run: Callable[[list[str]], str] | None = None) -> Iterator[DoctorFinding]:
    """The driver, what it sees, and whether MPS is there."""
    ask = run or _run
    try:
        listed = ask(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    except FileNotFoundError:
        yield DoctorFinding("GPU driver", "note", "no nvidia-smi: this machine schedules CPU slots")
        return
    except (subprocess.SubprocessError, OSError) as error:
        yield DoctorFinding("GPU driver", "bad", f"nvidia-smi fails: {error}")
        return
    gpus = [line for line in listed.splitlines() if line.strip()]
    first = gpus[0].strip() if gpus else "none"
    count = say_gpus(len(gpus))
    yield DoctorFinding("GPU driver", "ok" if gpus else "bad", f"{count}, {first}")
    there = shutil.which("nvidia-cuda-mps-control") is not None
    text = "not installed: GPUs are shared in turns"
    if there:
        text = "small jobs that share a GPU are its clients (`local:mps=auto`, the default)"
    yield DoctorFinding("MPS", "ok" if there else "note", text)


def _run(command: list[str]) -> str:
    return subprocess.run(  # noqa: S603 - our own words
        command, capture_output=True, text=True, check=True, timeout=QUERY_S
    ).stdout
