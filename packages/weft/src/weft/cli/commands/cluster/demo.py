"""`weft demo`: the service on this machine with a small real workload."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from weft.cli.connect.client import ServiceClient, active_jobs, every_job
from weft.cli.connect.follow import state_line
from weft.cli.connect.own_service import ServiceLifetime, own_service
from weft.cli.job_files.demo_jobs import (
    CAPTIONS,
    GRACE_S,
    GROW,
    WORKLOAD,
    check_torch,
    choose_fitting,
    find_scripts,
)
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, interactive, repeat
from weft.cli.view.status import board, jobs_table
from weft.cli.view.words import ENDED
from weft.service.responses.answers import ClusterAnswer, JobAnswer, Made, Nodes, PolicyAnswer
from weft_client.connection import at

LABELS = ("", "batch", "goodput")


def demo(
    slots: Annotated[int, typer.Option(help="CPU slots to schedule on.", min=1, max=64)] = 4,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="The policy; default: two policies take turns.")
    ] = "",
    port: Annotated[int, typer.Option(help="Port of the API; another one if it is taken.")] = 7878,
    leave: Annotated[
        bool,
        typer.Option("--exit", help="Exit when the jobs are done; the same as WEFT_DEMO_EXIT=1."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Exit when the jobs are done; the service keeps running.")
    ] = False,
) -> None:
    """Try Weft: start the service and its web page here, with real training jobs.

    Six different PyTorch jobs share a few CPU slots. The live view shows which job holds what,
    batch sizes, goodput and the queue; the page shows more. Afterwards the service runs until
    Ctrl-C if a terminal is attached, or for good with --keep; otherwise it exits.
    """
    attended = interactive()
    wait = attended and not leave and os.environ.get("WEFT_DEMO_EXIT", "") in ("", "0")
    screen, stay = console(), ServiceLifetime(keep)
    with user_errors(), ExitStack() as cleanup:
        check_torch()
        folder = Path(tempfile.mkdtemp(prefix="weft-demo-"))
        cleanup.callback(lambda: None if stay.wanted else shutil.rmtree(folder, ignore_errors=True))
        screen.print("starting the service and a process that has PyTorch loaded", style="dim")
        options = (
            "--engine",
            f"local:cpu=true,slots={slots},sleep=false",
            "--policy",
            policy or GROW,
        )
        with own_service(folder, port, *options, stay=stay) as client:
            show = Show(client, attended=attended, fixed=bool(policy))
            try:
                screen.print(f"page: {client.url}   API: {client.url}/docs", soft_wrap=True)
                show.play()
                show.final()
                if stay.wanted:
                    keep_feeding(client.url)
                    text = (
                        "the service keeps running and a job arrives from time to time; "
                        f"`kill {stay.pid}` ends both, {folder} is its state"
                    )
                    screen.print(text, soft_wrap=True)
                    screen.print(what_next(client.url, jobs_of(client)), soft_wrap=True)
                elif wait:
                    wait_for_ctrl_c(client)
            except KeyboardInterrupt:
                stay.wanted = False
                screen.print("leaving", style="dim")
            finally:
                if not stay.wanted:
                    end_all(client, folder)
        screen.print(f"the page: {client.url}" if stay.wanted else f"the page was {client.url}")
    raise typer.Exit(0 if show.good else 1)


class Show:
    """The workload, submitted bit by bit, and what is observed about it."""

    def __init__(self, client: ServiceClient, *, attended: bool, fixed: bool) -> None:
        self.client, self._attended = client, attended
        self._policy = "" if fixed else GROW
        self._caption = CAPTIONS.get(self._policy, "")
        self._scripts = find_scripts()
        self._to_come = list(WORKLOAD)
        self._began = time.monotonic()
        self._states: dict[str, str] = {}
        self._own: set[str] = set()
        self._stories: dict[str, str] = {}
        self.good = True

    def play(self) -> None:
        """Show the jobs until every one has ended."""
        if self._attended:
            repeat(self._render, every_s=0.5, done=lambda: self._over, interrupts=True)
            return
        while not self._over:
            self._tell_changes(self._jobs())
            time.sleep(0.5)

    def final(self) -> None:
        """Every job and how it ended."""
        jobs = [job for job in every_job(self.client) if job.id in self._own]  # people add theirs
        self.good = all(job.state == "succeeded" for job in jobs)
        screen = console()
        now = self.client.get(ClusterAnswer, "/cluster").now
        ended = [replace(job, allocation=None) for job in jobs]
        screen.print()
        screen.print(jobs_table(ended, now, screen.width))
        took = time.monotonic() - self._began
        word = "done" if self.good else "over, not all of them well"
        screen.print(f"\n{len(jobs)} jobs {word} in {took:.0f} s; page: {self.client.url}")

    @property
    def _over(self) -> bool:
        ended = ("succeeded", "failed", "cancelled")
        return not self._to_come and all(self._states[job] in ended for job in self._own)

    def _jobs(self) -> list[JobAnswer]:
        """Submit what is due, then all jobs as they are."""
        while self._to_come and time.monotonic() - self._began >= self._to_come[0].after:
            later = self._to_come.pop(0)
            self._choose(coming=1)
            made = self.client.post(Made, "/jobs", later.body(self._scripts))
            self._states[made.id] = "pending"
            self._own.add(made.id)
        jobs = list(every_job(self.client))
        self._states |= {job.id: job.state for job in jobs}
        self._choose()
        return jobs

    def _choose(self, coming: int = 0) -> None:
        """Another policy where the moment asks for one."""
        wanted = choose_fitting(coming + sum(state not in ENDED for state in self._states.values()))
        if self._policy and wanted != self._policy:
            self.client.put(PolicyAnswer, "/policy", {"policy": wanted})
            self._policy, self._caption = wanted, CAPTIONS[wanted]
            if not self._attended:
                self._tell(f"policy {wanted}: {self._caption}")

    def _render(self, width: int) -> Any:
        jobs = self._jobs()
        cluster = self.client.get(ClusterAnswer, "/cluster")
        nodes = self.client.get(Nodes, "/nodes").nodes
        ended = sum(state == "succeeded" for state in self._states.values())
        foot = f"{ended} done, {len(self._to_come)} to come · {self.client.url} · Ctrl-C leaves"
        seen = board(cluster, nodes, jobs, cluster.now, width)
        return Group(Text(self._caption, style="italic"), seen, Text(), Text(foot, style="dim"))

    def _tell_changes(self, jobs: list[JobAnswer]) -> None:
        """A line for every job that changed, where there is no screen."""
        for job in jobs:
            name, text = job.id, state_line(job)
            if self._stories.get(name) != text:
                self._stories[name] = text
                extra = [words.percent_done(job), words.batch(job), words.goodput(job)]
                more = ", ".join(
                    f"{a} {b}".strip() for a, b in zip(LABELS, extra, strict=True) if b
                )
                self._tell(f"{job.name or name}: {text}" + (f"; {more}" if more else ""))

    def _tell(self, text: str) -> None:
        console().print(f"{time.monotonic() - self._began:6.1f} s  {text}", soft_wrap=True)


def end_all(client: ServiceClient, state: Path) -> None:
    """Cancel what has not ended and wait for its processes, so that none outlives the service.

    A cancelled job gives its devices back at once, but its processes may take their grace time;
    the local engine marks those that may still run.
    """
    for job in active_jobs(client):
        client.delete(at("jobs", job.id))
    deadline = time.monotonic() + GRACE_S + 5.0
    while time.monotonic() < deadline and any((state / "live").glob("*")):
        time.sleep(0.1)


def keep_feeding(url: str) -> None:
    """Let jobs come until the service has gone: a process of its own, which we do not wait for."""
    subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "weft.cli.job_files.demo_jobs", url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def jobs_of(client: ServiceClient) -> list[str]:
    """Ids of all jobs."""
    return [job.id for job in every_job(client)]


def what_next(url: str, jobs: list[str]) -> str:
    """Return commands to try now, to be copied into another terminal."""
    name = jobs[0] if jobs else "ID"
    path = "" if shutil.which("weft") else f" PATH={Path(sys.executable).parent}:$PATH"
    lines = (
        (f"export WEFT_URL={url}{path}", "in another terminal, then:"),
        ("weft top", "which job holds what, live"),
        (f"weft job {name}", "what happened to a job"),
        ("weft run --gpus 2 -- python -c 'print(1)'", "a job of your own"),
        ("weft plan --gpus 4", "what would happen to a job"),
        ("weft what-if --policy fifo", "the same jobs under another policy"),
    )
    wide = max(len(command) for command, _ in lines[1:])
    return "\n".join(f"  {command:<{wide}}  {what}" for command, what in lines)


def wait_for_ctrl_c(client: ServiceClient) -> None:
    """The service stays until its person has seen enough."""
    console().print("the service stays here until Ctrl-C", soft_wrap=True)
    console().print(what_next(client.url, jobs_of(client)), soft_wrap=True)
    while True:
        time.sleep(3600.0)
