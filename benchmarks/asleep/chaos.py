"""Random freezes, suspends and kills of service, agent and job: nothing lost, nothing left frozen.

    python -m benchmarks.asleep.chaos --rounds 300 --seed 1

A few trainings take turns on CPU slots under `las`, which freezes and wakes them, while somebody
drawn by a seed is frozen or moved to host memory (by a stand-in for the driver) and thawed,
suspended and resumed by its owner, or killed: the service (kill -9, then a new one on the same
log), an agent, or a job. The trainings compute a loss from every step before; each must end with
the losses of an undisturbed run, bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from weft.wire.processes import descendants, find_tagged, is_frozen
from weft.wire.sleep import read_request, read_state

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "integration" / "pretend_driver.py"
SERVICE = Path(__file__).with_name("chaos_service.py")
SLOTS, JOBS, STEPS = 2, 4, 60
WAYS = (
    *("freeze", "move to host", "thaw", "thaw") * 2,
    *("suspend", "resume") * 2,
    *("kill service", "kill service", "kill agent", "kill job", "cancel"),
)
MOST_KILLS = 2  # of a job itself: one that fails early three times is not tried again
LIMIT_S = 600.0  # for an answer, and for everybody to end, on a busy machine

TRAINING = """
import hashlib, json, os, pathlib, sys, time
steps, out = int(sys.argv[1]), pathlib.Path(sys.argv[2])
state, losses = b"seed", []
for step in range(steps):
    state = hashlib.sha256(state + bytes([step % 256])).digest()
    losses.append(int.from_bytes(state[:4], "big") / 2**32)
    time.sleep(0.03)
out.write_text(json.dumps(losses))
"""


def expected(steps: int) -> list[float]:
    """The losses of a run that nobody disturbed."""
    state, losses = b"seed", []
    for step in range(steps):
        state = hashlib.sha256(state + bytes([step % 256])).digest()
        losses.append(int.from_bytes(state[:4], "big") / 2**32)
    return losses


class Chaos:
    """A service in a process of its own, and somebody who disturbs it."""

    def __init__(self, room: Path, seed: int) -> None:
        self.room, self.state = room, room / "state"
        self._draw = random.Random(seed)
        self._service: subprocess.Popen[str] | None = None
        self._number = 0
        self.cancelled: set[str] = set()
        self.done, self._killed = Counter[str](), Counter[str]()
        (room / "devices").mkdir(parents=True)
        (room / "out").mkdir()

    # ---- the service

    def begin(self) -> None:
        """Start a service, or another one on the same log."""
        self._hang_up()
        command = [sys.executable, str(SERVICE), str(self.room), str(DRIVER), str(SLOTS)]
        self._service = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.ask("hello")["ok"]

    def ask(self, what: str, **values: object) -> dict[str, object]:
        """One request and its answer."""
        service = self._service
        assert service is not None
        assert service.stdin is not None
        assert service.stdout is not None
        service.stdin.write(json.dumps({"what": what, **values}) + "\n")
        service.stdin.flush()
        with selectors.DefaultSelector() as select:
            select.register(service.stdout, selectors.EVENT_READ)
            assert select.select(LIMIT_S), f"no answer to {what!r}; {self.describe()}"
        line = service.stdout.readline()
        assert line, "the service has died"
        answer: dict[str, object] = json.loads(line)
        return answer

    def end(self) -> None:
        """Stop it for good."""
        assert self._service is not None
        self.ask("close")
        self._service.wait(LIMIT_S)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._service is not None:
            for pipe in (self._service.stdin, self._service.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()

    # ---- what happens

    def submit(self) -> None:
        """One more training."""
        name = f"job-{self._number}"
        self._number += 1
        out = self.room / "out" / f"{name}.json"
        command = [sys.executable, "-c", TRAINING, str(STEPS), str(out)]
        self.ask("submit", name=name, command=command)

    def disturb(self) -> None:
        """One thing, drawn."""
        active = self.active()
        while len(active) < JOBS:
            self.submit()
            active = self.active()
        way, job = self._draw.choice(WAYS), self._draw.choice(active)
        self.done[way] += 1
        if way == "kill service":
            assert self._service is not None
            self._service.send_signal(signal.SIGKILL)
            self._service.wait()
            time.sleep(self._draw.uniform(0.0, 0.5))
            self.begin()
        elif way in ("kill agent", "kill job"):
            self._kill(job, agent=way == "kill agent")
        else:
            if way == "cancel":
                self.cancelled.add(job)
            self.ask(way, name=job)
        time.sleep(self._draw.uniform(0.0, 0.15))

    def active(self) -> list[str]:
        """Jobs that have not ended."""
        names = self.ask("active")["jobs"]
        assert isinstance(names, list)
        return names

    def _kill(self, job: str, *, agent: bool) -> None:
        folders = sorted((self.state / "jobs").glob(f"{job}/[0-9]*"))
        claims = [folder / "claim.json" for folder in folders if (folder / "claim.json").exists()]
        if not claims:
            return
        if not agent:
            self._killed[job] += 1
            if self._killed[job] > MOST_KILLS:
                return
        pid = int(json.loads(claims[-1].read_text())["pid"])
        victims = [pid] if agent else descendants(pid)[:1]
        for victim in victims:
            if victim > 0:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)

    def describe(self) -> str:
        """What was asked of every attempt, what its agent answered, and what lives of it."""
        folders = sorted((self.state / "jobs").glob("*/[0-9]*"))
        lines = [
            f"{folder}: {read_request(folder)}, {read_state(folder)}, "
            f"processes {[*find_tagged('WEFT_ATTEMPT_DIR', str(folder))]}"
            for folder in folders
        ]
        return "\n".join(lines)

    # ---- what must be so

    def settle(self) -> None:
        """Let everybody go on to the end."""
        until = time.monotonic() + LIMIT_S
        while left := self.active():
            for job in left:
                self.ask("thaw", name=job)  # again: an agent that was just killed does not answer
                self.ask("resume", name=job)
            assert time.monotonic() < until, (
                f"they never end: {self.ask('active')['states']}; {self.describe()}"
            )
            time.sleep(0.2)

    def check(self) -> dict[str, object]:
        """Every training has the losses of an undisturbed one; nothing is left anywhere."""
        wanted, wrong, done = expected(STEPS), [], 0
        for number in range(self._number):
            name = f"job-{number}"
            out = self.room / "out" / f"{name}.json"
            if out.exists():
                done += 1
                if json.loads(out.read_text()) != wanted:
                    wrong.append(name)
            elif name not in self.cancelled:
                wrong.append(f"{name} (no result)")
        return {"trainings": self._number, "ended": done, "wrong": wrong, "frozen": self.frozen()}

    def frozen(self) -> list[int]:
        """Processes of any attempt that are still there."""
        pids = []
        for folder in (self.state / "jobs").glob("*/[0-9]*"):
            pids += [*find_tagged("WEFT_ATTEMPT_DIR", str(folder))]
        return [pid for pid in pids if is_frozen(pid)]


def run(room: Path, rounds: int, seed: int) -> dict[str, object]:
    """So many disturbances, then to the end."""
    chaos = Chaos(room, seed)
    chaos.begin()
    try:
        for _ in range(rounds):
            chaos.disturb()
        chaos.settle()
    finally:
        chaos.end()
    return {**chaos.check(), "done": dict(chaos.done), "rounds": rounds, "seed": seed}


def main() -> int:
    """Print one JSON object; 1 if anything was lost or left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-chaos-") as room:
        result = run(Path(room), asked.rounds, asked.seed)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 1 if result["wrong"] or result["frozen"] else 0


if __name__ == "__main__":
    sys.exit(main())
