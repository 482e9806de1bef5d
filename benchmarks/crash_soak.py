"""Do everything bad to a service and its jobs at random moments; nothing may be lost.

    python -m benchmarks.crash_soak --faults 200 [--engine slurm]

A child process (`benchmarks.soak_service`) runs the driver on an engine, by default the local one,
and takes requests over pipes. It, its agents and their ranks are killed and frozen, its disk is
filled, its files are used up, its machines are drained, and jobs spoil their own files, hide
processes and report garbage, while elastic and shared jobs and arrays are resized, suspended and
moved by policies that change. With another engine than the local one a throw-away cluster is made,
whose controller and nodes go away at times. Each job counts to its goal in a file, and each of its
ranks holds a lock that another rank of the same number would find taken. At the end every promise
is checked (`benchmarks.soak_check`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clusters.testbed import TESTBEDS, Testbed

from benchmarks.soak_check import check
from benchmarks.soak_jobs import COUNTS, HARM, LOCAL_ONLY, ids_of
from weft.stack.layers import LONGEST_S
from weft.wire.processes import alive

LOCAL = Testbed("local:slots=4,warm=false,cpu=true,name=soak")
OPTIMUS = "optimus:interval=0.25"
PREEMPTING = "srtf"
POLICIES = (*[OPTIMUS] * 9, *[PREEMPTING] * 3, "fifo", "las", "tiresias", "gandiva", "muri")
CANCELS = 0.03  # of all that is asked: more, and few jobs live to be harmed
JOBS_A_FAULT = 0.4  # so few that those there are can grow
DISK_KB = 160 * 1024
MANY = 500  # faults: then each of them, and everything jobs can live through, has happened
ANSWER_S = 300.0  # what a request may take on a machine that has much else to do
END_S = ANSWER_S + 2.0 * LONGEST_S  # a job that failed often waits long before it is tried again
INSISTED = 30  # times that what must happen in the end is asked for
WEIGHTS = {
    "service killed": 25,
    "agent killed": 10,
    "rank killed": 10,
    "agent frozen": 8,
    "rank frozen": 6,
    "service frozen": 5,
    "drained": 6,
    "disk full": 5,
    "files used up": 6,
    "harmful job": 12,
    "policy changed": 7,
    "controller away": 6,
    "node away": 4,
}
NODE_AWAY_S = 30.0  # at most: a cluster misses a node after 20


@dataclass
class Soak:
    """One soak and what was promised to us in it."""

    folder: Path
    rng: random.Random
    longest: int = 40
    bed: Testbed = LOCAL
    disk: bool = False
    nodes: list[str] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    harmful: dict[str, str] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WEIGHTS, 0))
    refused: int = 0
    asked: int = 0
    child: subprocess.Popen[str] | None = None

    @property
    def state(self) -> Path:
        """The service's folder."""
        return self.folder / "state"

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Folders, the job's script, and a small disk for the service where one may be mounted."""
        self.state.mkdir(parents=True)
        (self.folder / "work").mkdir()
        (self.folder / "job.py").write_text(COUNTS)
        self.disk = _mounted(self.state)
        try:
            yield
        finally:
            if self.disk:
                subprocess.run(["umount", "-l", self.state], check=True)

    def start(self) -> None:
        """A service that is ready."""
        with (self.folder / "service.log").open("a") as errors:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak_service", str(self.state), self.bed.engine],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                cwd=Path(__file__).resolve().parents[1],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.nodes = self._answer()["ready"]

    def keep_log(self) -> None:
        """Copy the log to where it stays, with what is in its WAL: its disk goes with us."""
        for path in self.state.glob("events.db*"):
            shutil.copy(path, self.folder)

    def live(self, seconds: float) -> None:
        """Ask for things until the time is up."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.rng.random() < 0.5:
                self.ask(self.request())
            else:
                time.sleep(self.rng.uniform(0.0, 0.1))

    def insist(self, request: dict[str, Any]) -> None:
        """Ask again what is refused, as for want of files or of room on the disk."""
        for _ in range(INSISTED):
            refused = self.refused
            self.ask(request)
            if self.refused == refused:
                return
            time.sleep(1.0)
        raise RuntimeError(f"{request} was refused {INSISTED} times")

    def ask(self, request: dict[str, Any], wait: bool = True) -> None:
        """Send a request; with `wait`, remember what was promised."""
        assert self.child is not None
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(request) + "\n")
        self.child.stdin.flush()
        if request["do"] == "submit" and request["harm"]:
            self.harmful[request["job"]] = request["harm"]
        if not wait:
            return
        answer = self._answer(END_S if request["do"] == "wait" else ANSWER_S)
        if "refused" in answer:
            self.refused += 1
        elif request["do"] == "submit":
            self.submitted += ids_of(request)
        elif request["do"] == "cancel":
            self.cancelled.add(request["job"])

    def _answer(self, within_s: float = ANSWER_S) -> dict[str, Any]:
        assert self.child is not None
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], within_s)
        if not ready:
            self.child.kill()
            raise RuntimeError(f"no answer within {within_s:.0f} s")
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError((self.folder / "service.log").read_text()[-3000:])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def request(self) -> dict[str, Any]:
        """Something to ask for; mostly jobs, as long as there are not too many."""
        roll = self.rng.random()
        if roll < CANCELS and self.submitted:
            return {"do": "cancel", "job": self.rng.choice(self.submitted[-10:])}
        if len(self.submitted) > 4 + JOBS_A_FAULT * sum(self.faults.values()):
            return {"do": "nothing"}
        return self.job()

    def job(self, harm: str = "", *, goal: int = 0, gpus: int = 0) -> dict[str, Any]:
        """A job: elastic, or on a part of a device, or one that does harm."""
        self.asked += 1
        goal = goal or self.rng.randint(2, self.longest)
        array = 3 * (not harm and not gpus and self.rng.random() < 0.25)
        shared = self.bed is LOCAL and not harm and not gpus and self.rng.random() < 0.25
        least = gpus or (1 if shared or harm else self.rng.choice((1, 1, 1, 2)))
        return {
            "do": "submit",
            "job": f"job-{self.asked}",
            "harm": harm,
            "array": array,
            "folder": str(self.folder),
            "tenant": self.rng.choice(("red", "blue")),
            "min": least,
            "max": least if shared or harm else self.rng.choice((2, 4, 4)),
            "share": 0.5 if shared else 1.0,
            "goal": goal,
            "command": [str(self.folder / "job.py"), str(self.folder / "work"), str(goal), "0.05"],
        }

    # ---- faults

    def fault(self) -> None:
        """One of them, by chance; it counts if there was something to do it to."""
        kinds = {kind: WEIGHTS[kind] for kind in self.possible()}
        kind = self.rng.choices([*kinds], [*kinds.values()])[0]
        does: dict[str, Callable[[], bool]] = {
            "service killed": self._kill_service,
            "agent killed": lambda: self._signal("agent", signal.SIGKILL),
            "rank killed": lambda: self._signal("rank", signal.SIGKILL),
            "agent frozen": lambda: self._signal("agent", signal.SIGSTOP),
            "rank frozen": self._freeze_rank,
            "service frozen": self._freeze_service,
            "drained": self._drain,
            "disk full": self._fill_disk,
            "files used up": self._use_up_files,
            "harmful job": self._do_harm,
            "policy changed": self._change_policy,
            "controller away": self._take_controller,
            "node away": self._take_node,
        }
        self.faults[kind] += does[kind]()

    def possible(self) -> list[str]:
        """The kinds of faults that can be done here."""
        cannot = {
            "disk full": not self.disk,
            "controller away": self.bed.stop_controller is None,
            "node away": self.bed.kill_node is None,
        }
        return [kind for kind in WEIGHTS if not cannot.get(kind)]

    def _take_controller(self) -> bool:
        assert self.bed.stop_controller
        assert self.bed.start_controller
        self.bed.stop_controller()
        self.live(self.rng.uniform(0.1, 3.0))
        self.bed.start_controller()
        return True

    def _take_node(self) -> bool:
        assert self.bed.kill_node
        assert self.bed.restore_node
        node = self.rng.choice(self.nodes)
        self.bed.kill_node(node)
        self.live(self.rng.uniform(0.1, NODE_AWAY_S))
        self.bed.restore_node(node)
        return True

    def _kill_service(self) -> bool:
        assert self.child is not None
        # Killed with a request on its way: it may or may not have been accepted.
        self.ask(self.request(), wait=False)
        time.sleep(self.rng.uniform(0.0, 0.02))
        self.child.kill()
        self.child.communicate()
        self.start()
        return True

    def _freeze_service(self) -> bool:
        assert self.child is not None
        self.child.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.1, 1.0))
        self.child.send_signal(signal.SIGCONT)
        return True

    def _freeze_rank(self) -> bool:
        processes = self._processes("rank")
        if not processes:
            return False
        pid, began = self.rng.choice(processes)
        _send(pid, began, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.1, 0.5))
        return _send(pid, began, signal.SIGCONT)

    def _drain(self) -> bool:
        node = self.rng.choice(self.nodes)
        self.ask({"do": "drain", "node": node})
        time.sleep(self.rng.uniform(0.0, 0.3))
        self.ask({"do": "undrain", "node": node})
        return True

    def _fill_disk(self) -> bool:
        filler = self.state / "filler"
        free = shutil.disk_usage(self.state).free
        with contextlib.suppress(OSError), filler.open("wb") as out:
            os.posix_fallocate(out.fileno(), 0, max(free, 1))
        self.ask(self.job())  # refused, or there was room for one more
        self.live(self.rng.uniform(0.2, 1.0))
        filler.unlink()
        return True

    def _use_up_files(self) -> bool:
        self.ask({"do": "files", "seconds": self.rng.uniform(0.1, 1.0)})
        return True

    def _do_harm(self) -> bool:
        kinds = [kind for kind in HARM if self.bed is LOCAL or kind not in LOCAL_ONLY]
        self.ask(self.job(self.rng.choice(kinds)))
        return True

    def _change_policy(self) -> bool:
        policy = self.rng.choice(POLICIES)
        self.ask({"do": "policy", "policy": policy})
        if policy == PREEMPTING:
            self._crowd()
        return True

    def _crowd(self) -> None:
        """More long jobs than there is room for, and short ones that put some of them aside."""
        for goal in (*[2 * self.longest] * 3, *[2] * 3):
            self.ask(self.job(goal=goal, gpus=2))
            time.sleep(self.rng.uniform(0.1, 0.4))

    def _signal(self, victim: str, what: signal.Signals) -> bool:
        processes = self._processes(victim)
        return bool(processes) and _send(*self.rng.choice(processes), what)

    def _processes(self, victim: str) -> list[tuple[int, int]]:
        processes: list[tuple[int, int]] = []
        for mark in sorted((self.state / "live").iterdir()):
            job, _, attempt = mark.name.rpartition("@")
            with contextlib.suppress(OSError, ValueError, KeyError):  # spoilt, or over meanwhile
                processes += _named(self.state / "jobs" / job / attempt, victim)
        return processes


def _named(folder: Path, victim: str) -> Iterable[tuple[int, int]]:
    if victim == "agent":
        for path in folder.rglob("claim.json"):  # one of each node
            claim = json.loads(_text(path))
            yield claim["pid"], claim["began"]
        return
    logs = [_text(path) for path in folder.rglob("events.jsonl")]
    for line in "".join(logs).splitlines():
        if line.endswith("}") and '"event":"started"' in line:
            yield from map(tuple, json.loads(line)["ranks"].values())


def _text(path: Path) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a job may have made a pipe of it
    with os.fdopen(handle) as source:
        return source.read()


def _send(pid: int, began: int, what: signal.Signals) -> bool:
    if pid <= 1 or not alive(pid, began):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
        return True
    return False


def _mounted(folder: Path) -> bool:
    if shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "weft-soak", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def soak(
    folder: Path,
    faults: int,
    seed: int = 0,
    pause_s: float = 1.0,
    longest: int = 40,
    bed: Testbed = LOCAL,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Do `faults` bad things, let everything end, and check; what was seen.

    Between two of them pass up to `pause_s` seconds; a job takes up to `longest` ticks.
    """
    it = Soak(folder, random.Random(seed), longest, bed)
    began = time.monotonic()
    with it.prepared():
        it.start()
        try:
            it.ask({"do": "policy", "policy": POLICIES[0]})
            while sum(it.faults.values()) < faults:
                it.live(it.rng.uniform(0.0, pause_s))
                it.fault()
                report(f"{sum(it.faults.values())} faults, {len(it.submitted)} jobs accepted")
            it.insist({"do": "policy", "policy": "fifo"})
            for node in it.nodes:
                it.insist({"do": "undrain", "node": node})  # a kill may have come before it
            it.insist({"do": "wait"})
        finally:
            assert it.child is not None
            it.child.communicate()
            it.keep_log()
        seen = check(it)
    seconds = round(time.monotonic() - began, 1)
    if faults >= MANY:
        _check_everything_happened(it, seen)
    return {**seen, "refused": it.refused, "faults": it.faults, "seconds": seconds}


def _check_everything_happened(it: Soak, seen: dict[str, Any]) -> None:
    """Raise AssertionError if a long soak lacked something that it is there to show."""
    missing = [kind for kind in it.possible() if not it.faults[kind]]
    missing += [
        what for what in ("resizes", "suspensions", "of arrays", "cancelled") if not seen[what]
    ]
    assert not missing, f"never happened: {missing}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=sorted(TESTBEDS), default="local")
    parser.add_argument("--keep", type=Path, help="folder to keep everything in")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clusters are torn down all the same
    with contextlib.ExitStack() as stack:
        bed = LOCAL if args.engine == "local" else stack.enter_context(TESTBEDS[args.engine]())
        temporary = tempfile.TemporaryDirectory(prefix="weft-soak-")
        folder = args.keep or Path(stack.enter_context(temporary)) / "soak"
        seen = soak(folder, args.faults, args.seed, bed=bed, report=_to_stderr)
        print(json.dumps(seen))


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
