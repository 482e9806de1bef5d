"""Kill the service, agents and ranks with SIGKILL at random moments; nothing may be lost.

    python -m benchmarks.crash_soak --kills 200

A child process runs the driver on the local engine and takes requests (submit, cancel, change
of policy, drain) over pipes; it is killed again and again while elastic jobs are resized and
others wait, fail, finish. Each job counts to its goal in a file, and each of its ranks holds a
lock that another rank of the same number would find taken. At the end every promise is checked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.core.cluster import Cluster
from weft.core.events import (
    Decided,
    Event,
    Failed,
    Finished,
    NodeDown,
    Started,
    Stopped,
    Submitted,
)
from weft.core.knowledge import Knowledge
from weft.core.launch import Launch
from weft.core.model import Demand, Job, JobId, NodeId
from weft.core.scheduler import Scheduler
from weft.engines.local import LocalEngine
from weft.perf.linear import LinearBeliefs
from weft.policies.fifo import Fifo
from weft.predict.hinted import Hinted
from weft.runtime.driver import Driver
from weft.runtime.recover import recover
from weft.runtime.replay import decide_again
from weft.store.sqlite import SqliteStore
from weft.wire.processes import alive

NODE = "soak"
SLOTS = 4
OPTIMUS = "optimus:interval=0.25"
POLICIES = (*[OPTIMUS] * 6, "fifo", "las", "srtf")
JOBS_A_KILL = 0.5  # so few that those there are can grow
KILLED = ("service", "agent", "rank")
TICK_S = 0.05
SCRIPT = """
import fcntl, os, signal, sys, time
folder, goal = sys.argv[1], int(sys.argv[2])
job, rank = os.environ["WEFT_JOB"], os.environ["RANK"]
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
lock = os.open(f"{folder}/{job}.{rank}.lock", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    with open(f"{folder}/DOUBLE", "a") as out:
        out.write(f"{job} attempt {os.environ['WEFT_ATTEMPT']} rank {rank}\\n")
count = f"{folder}/{job}.count"
done = int(open(count).read()) if os.path.exists(count) else 0
while done < goal:
    time.sleep(float(sys.argv[3]))
    done += 1
    if rank == "0":
        with open(count + ".new", "w") as out:
            out.write(str(done))
        os.replace(count + ".new", count)
"""


# ---- the child: a service with pipes instead of HTTP


async def serve(state: Path) -> None:
    engine = LocalEngine(state, slots=SLOTS, warm=False, cpu=True, name=NODE)
    store = SqliteStore(state / "events.db")
    driver = Driver(
        engine, store, knowledge=lambda: Knowledge(Hinted(), LinearBeliefs()), snapshot_every=100
    )
    await driver.open()
    _say({"ready": True})
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request = json.loads(line)
        await _do(driver, request)
        _say(request)
    await driver.close()
    store.close()


async def _do(driver: Driver, request: dict[str, Any]) -> None:
    match request["do"]:
        case "submit":
            await driver.submit(_job(request))
        case "cancel":
            await driver.cancel(JobId(request["job"]))
        case "policy":
            await driver.set_policy(request["policy"])
        case "drain":
            await driver.drain(NodeId(NODE))
            await driver.undrain(NodeId(NODE))
        case "wait":
            for job in [*driver.ledger.jobs]:
                await driver.ended(job)


def _job(request: dict[str, Any]) -> Job:
    least, most, goal = request["min"], request["max"], request["goal"]
    command = (sys.executable, "-S", "-E", *request["command"])
    return Job(
        JobId(request["job"]),
        tenant=request["tenant"],
        demand=Demand(least, least, most),
        hints={"duration_s": goal * TICK_S},
        launch=Launch(command, workdir="/", grace_s=5.0, retries=1000, backoff_s=0.1),
    )


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# ---- the parent: asks, kills, checks


@dataclass
class Soak:
    """One soak and what was promised to us in it."""

    folder: Path
    rng: random.Random
    longest: int = 40
    submitted: list[str] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KILLED, 0))
    asked: int = 0

    @property
    def state(self) -> Path:
        """The service's folder."""
        return self.folder / "state"

    def prepare(self) -> None:
        """Make the folders and the job's script."""
        self.state.mkdir(parents=True)
        (self.folder / "work").mkdir()
        (self.folder / "job.py").write_text(SCRIPT)

    def start(self) -> subprocess.Popen[str]:
        """A service that is ready."""
        with (self.folder / "service.log").open("a") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.crash_soak", "--serve", str(self.state)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=Path(__file__).resolve().parents[1],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        if not _answer(child):
            raise RuntimeError((self.folder / "service.log").read_text()[-3000:])
        return child

    def live(self, child: subprocess.Popen[str], seconds: float, victim: str) -> None:
        """Ask for things until the time is up, then kill without warning."""
        until = time.monotonic() + seconds
        timer = subprocess.Popen(["sleep", f"{seconds:.3f}"]) if victim == "service" else None
        os.set_blocking(child.stdout.fileno(), True)  # type: ignore[union-attr]
        while time.monotonic() < until:
            if self.rng.random() < 0.5:
                self.ask(child, self.request())
            else:
                time.sleep(self.rng.uniform(0.0, 0.1))
        if timer is not None:
            timer.wait()
            # Killed with a request on its way: it may or may not have been accepted.
            self.ask(child, self.request(), wait=False)
            time.sleep(self.rng.uniform(0.0, 0.02))
            child.kill()
            child.communicate()
            self.kills["service"] += 1
        else:
            self.kills[victim] += self._kill_process(victim)

    def ask(self, child: subprocess.Popen[str], request: dict[str, Any], wait: bool = True) -> None:
        """Send a request; with `wait`, remember what was promised."""
        assert child.stdin is not None
        child.stdin.write(json.dumps(request) + "\n")
        child.stdin.flush()
        if wait and _answer(child):
            if request["do"] == "submit":
                self.submitted.append(request["job"])
            elif request["do"] == "cancel":
                self.cancelled.add(request["job"])

    def request(self) -> dict[str, Any]:
        """Something to ask for; mostly jobs, as long as there are not too many."""
        self.asked += 1
        roll = self.rng.random()
        if roll < 0.1 and self.submitted:
            return {"do": "cancel", "job": self.rng.choice(self.submitted[-10:])}
        if roll < 0.15:
            return {"do": "policy", "policy": self.rng.choice(POLICIES)}
        if roll < 0.2:
            return {"do": "drain"}
        if len(self.submitted) > 4 + JOBS_A_KILL * sum(self.kills.values()):
            return {"do": "nothing"}
        goal = self.rng.randint(2, self.longest)
        return {
            "do": "submit",
            "job": f"job-{self.asked}",
            "tenant": self.rng.choice(("red", "blue")),
            "min": self.rng.choice((1, 1, 1, 2)),
            "max": self.rng.choice((2, 4, 4)),
            "goal": goal,
            "command": [str(self.folder / "job.py"), str(self.folder / "work"), str(goal), "0.05"],
        }

    def _kill_process(self, victim: str) -> int:
        found = list(self._processes(victim))
        if not found:
            return 0
        pid, began = self.rng.choice(found)
        if alive(pid, began):
            os.kill(pid, signal.SIGKILL)
            return 1
        return 0

    def _processes(self, victim: str) -> Iterable[tuple[int, int]]:
        for mark in (self.state / "live").iterdir():
            job, _, attempt = mark.name.rpartition("@")
            folder = self.state / "jobs" / job / attempt
            if victim == "agent" and (folder / "claim.json").exists():
                claim = json.loads((folder / "claim.json").read_text())
                yield claim["pid"], claim["began"]
            elif victim == "rank" and (folder / "events.jsonl").exists():
                for line in (folder / "events.jsonl").read_text().splitlines():
                    if line.endswith("}") and '"event":"started"' in line:
                        yield from map(tuple, json.loads(line)["ranks"].values())


def _answer(child: subprocess.Popen[str]) -> bool:
    assert child.stdout is not None
    return bool(child.stdout.readline())


def soak(
    folder: Path, kills: int, seed: int = 0, pause_s: float = 1.0, longest: int = 40
) -> dict[str, Any]:
    """Kill `kills` times, let everything end, and check; what was seen.

    Between two kills pass up to `pause_s` seconds; a job takes up to `longest` ticks.
    """
    it = Soak(folder, random.Random(seed), longest)
    it.prepare()
    began = time.monotonic()
    child = it.start()
    it.ask(child, {"do": "policy", "policy": POLICIES[0]})
    while sum(it.kills.values()) < kills:
        victim = it.rng.choices(KILLED, (0.6, 0.2, 0.2))[0]
        it.live(child, it.rng.uniform(0.0, pause_s), victim)
        if victim == "service":
            child = it.start()
    it.ask(child, {"do": "policy", "policy": "fifo"})
    it.ask(child, {"do": "drain"})  # and back: a kill may have come between the two
    it.ask(child, {"do": "wait"})
    child.communicate()
    seen = check(it)
    return {**seen, "kills": it.kills, "seconds": round(time.monotonic() - began, 1)}


def check(it: Soak) -> dict[str, Any]:
    """Raise AssertionError for every promise that was broken."""
    store = SqliteStore(it.state / "events.db")
    log = store.since(0)
    known = recover(store, lambda: Scheduler(Fifo(), Cluster(())))
    store.close()
    jobs = known.ledger.jobs
    lost = [job for job in it.submitted if job not in jobs]
    assert not lost, f"accepted but not there: {lost}"
    assert not (it.folder / "work" / "DOUBLE").exists(), "a rank ran twice at once"
    overlaps = overlapping(it.state / "audit.jsonl")
    assert not overlaps, f"attempts of one job overlapped: {overlaps}"
    for job, record in jobs.items():
        assert record.outcome, f"{job} never ended"
        assert record.outcome != "failed", f"{job}: {record.reason}"
        if record.outcome == "succeeded":
            goal = int(record.job.launch.command[5])  # type: ignore[union-attr]
            reached = int((it.folder / "work" / f"{job}.count").read_text())
            assert reached == goal, f"{job} counted to {reached} of {goal}"
    for withdrawn in it.cancelled:
        assert jobs[JobId(withdrawn)].outcome in ("cancelled", "succeeded")
    used, counted = known.ledger.usage(log[-1][1]), gpu_seconds(log)
    for tenant in used.keys() | counted.keys():
        difference = abs(used.get(tenant, 0.0) - counted.get(tenant, 0.0))
        assert difference < 1e-6, f"{tenant}: ledger and log differ by {difference} GPU-seconds"
    turns = decide_again(log, knowledge=Knowledge(Hinted(), LinearBeliefs()))
    different = [turn for turn in turns if turn.then != turn.now]
    assert not different, f"{len(different)} decisions differ on replay, first {different[0]}"
    return {
        "events": len(log),
        "decisions": sum(turn.then is not None for turn in turns),
        "jobs": len(jobs),
        "accepted": len(it.submitted),
        "cancelled": sum(record.outcome == "cancelled" for record in jobs.values()),
        "starts": sum(record.starts for record in jobs.values()),
        "resizes": resizes(log),
        "gpu_s": round(sum(used.values()), 1),
    }


def overlapping(audit: Path) -> list[str]:
    """Jobs of which an attempt began before the one before it was over."""
    running: dict[str, int] = {}
    wrong = []
    for line in audit.read_text().splitlines():
        entry = json.loads(line)
        job, attempt = entry["job"], entry["attempt"]
        if entry["what"] == "end":
            running.pop(job, None)
        elif job in running and running[job] > attempt:
            wrong.append(job)  # an older one after a newer one
        else:
            running[job] = attempt
    return wrong


def gpu_seconds(log: Iterable[tuple[int, float, Event]]) -> dict[str, float]:  # noqa: C901
    """GPU-seconds of each tenant, counted from the log without the ledger's help."""
    tenant: dict[str, str] = {}
    holds: dict[str, Any] = {}
    promises: dict[str, list[float]] = {}
    started: dict[tuple[str, int], tuple[float, float]] = {}
    total: dict[str, float] = {}
    for _, at, event in log:
        match event:
            case Decided(changes=changes):
                for name, to in changes.items():
                    if to is not None and (not holds.get(name) or holds[name].slices != to.slices):
                        promises.setdefault(name, []).append(to.gpus * to.sharing.share)
                    holds[name] = to
            case NodeDown():
                holds.clear()  # there is but one node
            case Started(job, attempt):
                started[job, attempt] = (at, promises[job][attempt - 1])
            case Stopped(job, attempt) | Finished(job, attempt) | Failed(job, attempt):
                if len(promises[job]) == attempt:
                    holds[job] = None
                if (job, attempt) in started:
                    since, wide = started.pop((job, attempt))
                    total[tenant[job]] = total.get(tenant[job], 0.0) + (at - since) * wide
            case Submitted(job=submitted):
                tenant[submitted.id] = submitted.tenant
    return total


def resizes(log: Iterable[tuple[int, float, Event]]) -> int:
    """Decisions that gave a job another number of devices than it had before."""
    held: dict[str, int] = {}
    count = 0
    for _, _, event in log:
        if isinstance(event, Decided):
            for job, to in event.changes.items():
                if to is not None:
                    count += held.get(job, to.gpus) != to.gpus
                    held[job] = to.gpus
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder to keep everything in")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        asyncio.run(serve(args.serve))
    elif args.keep is not None:
        print(json.dumps(soak(args.keep, args.kills, args.seed)))
    else:
        with tempfile.TemporaryDirectory(prefix="weft-soak-") as folder:
            print(json.dumps(soak(Path(folder) / "soak", args.kills, args.seed)))


if __name__ == "__main__":
    main()
