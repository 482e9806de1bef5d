"""Kill and freeze whoever takes part in a live resize, at random moments; nothing may be lost.

    python -m benchmarks.live_resize_faults --faults 200

A service (`benchmarks.live_resize_service`) runs one job of a real training that changes its ranks
again and again. While it does, a new rank, an old one, the agent or the service is killed, a new
rank is frozen, or another change is asked for. After every fault the job must train on, on the
devices that it was given last. At the end every step must have been done by whole gangs: the
samples of each epoch once, in steps without a gap, with the losses of a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.live_resize_job import (
    BATCH,
    Row,
    latest,
    losses_of,
    read_rows,
    without_abandoned,
)
from benchmarks.live_resize_service import SLOTS, WISH
from weft.wire.processes import alive, descendants

FAULTS = {
    "new rank killed": 30,
    "new rank frozen": 10,
    "old rank killed": 15,
    "agent killed": 10,
    "service killed": 15,
    "another change": 10,
    "none": 10,
}
LATEST_S = 1.5  # after a change was asked for
HANG_S = 400.0  # without a step where it should be: ranks may all have to import torch
SAVE_S = 2.0
APART, FIRST = 1e-4, 100  # of the losses of the first steps
POLL_S = 0.02
COMMIT_S = 0.5  # after which a change that was being committed is written down
CHANGES = ("resizing", "epoch", "resized", "resize_failed")


@dataclass
class Soak:
    """One service, one job, and what was done to them."""

    folder: Path
    rng: random.Random
    layers: int = 1
    done: Counter[str] = field(default_factory=Counter)
    child: subprocess.Popen[bytes] | None = None
    slots: tuple[int, ...] = (0,)

    def start(self) -> None:
        """The service; its job goes on if there is one."""
        command = [sys.executable, "-m", "benchmarks.live_resize_service"]
        args = [str(self.folder), str(self.layers), str(SAVE_S)]
        with (self.folder / "service.log").open("ab") as log:
            self.child = subprocess.Popen([*command, *args], stdout=log, stderr=log)

    def wish(self, *slots: int) -> None:
        """Ask for these slots."""
        self.slots = slots
        fresh = self.folder / f".{WISH}"
        fresh.write_text(json.dumps(slots))
        fresh.replace(self.folder / WISH)

    def change(self) -> None:
        """Ask for other slots than it has."""
        slots = self.slots
        while slots == self.slots:
            count = self.rng.choice((1, 1, 2, 2, 3, 4))
            slots = tuple(sorted(self.rng.sample(range(SLOTS), count)))
        self.wish(*slots)

    def strike(self, fault: str) -> None:
        """Ask for a change, and do harm at some moment of it."""
        before, made = set(self.ranks()), self.counts()["epoch"]
        self.change()
        time.sleep(self.rng.uniform(0.0, LATEST_S))
        now = self.ranks()
        new, old = [pid for pid in now if pid not in before], [pid for pid in now if pid in before]
        struck = fault
        if fault.startswith("new") and new:
            struck = self._strike_new(fault, self.rng.choice(new), made)
        elif fault == "old rank killed" and old:
            _signal(self.rng.choice(old), signal.SIGKILL)
        elif fault == "agent killed" and (agent := self.agent()) is not None:
            _signal(agent, signal.SIGKILL)
        elif fault == "service killed" and self.child is not None:
            self.child.kill()
            self.child.wait()
            self.start()
        elif fault == "another change":
            self.change()
        else:
            struck = "none"
        self.done[struck] += 1

    def _strike_new(self, fault: str, pid: int, made: int) -> str:
        if fault == "new rank killed":
            _signal(pid, signal.SIGKILL)
            return fault
        _signal(pid, signal.SIGSTOP)
        time.sleep(COMMIT_S)
        if self.counts()["epoch"] == made:
            return fault
        # It had joined: a rank that somebody freezes as it trains stands still, live or not.
        _signal(pid, signal.SIGCONT)
        return "none"

    def recover(self) -> float:
        """Wait until it trains on the slots that were asked for last; seconds that took."""
        began = time.monotonic()
        while time.monotonic() < began + HANG_S:
            if self._trains(began):
                return time.monotonic() - began
            time.sleep(POLL_S)
        raise SystemExit(f"it hangs: {self.slots} after {dict(self.done)}; see {self.folder}")

    def _trains(self, since: float) -> bool:
        noted = (self.folder / "steps" / f"{pid}.jsonl" for pid in self.ranks())
        last = [_last_row(path) for path in noted if path.exists()]
        fresh = [row for row in last if row is not None and row.began > since]
        whole = {row.size for row in fresh} == {len(self.slots)}
        return whole and sorted(row.device for row in fresh) == [*self.slots]

    def attempts(self) -> list[Path]:
        """Folders of attempts, the last one first."""
        found = (self.folder / "state" / "jobs" / "job").glob("[0-9]*")
        return sorted(found, key=lambda path: int(path.name), reverse=True)

    def agent(self) -> int | None:
        """The process of the present attempt's agent, if it lives."""
        for folder in self.attempts()[:1]:
            claim = folder / "claim.json"
            if claim.exists():
                body = json.loads(claim.read_text())
                if body["pid"] and alive(body["pid"], body["began"]):
                    return int(body["pid"])
        return None

    def ranks(self) -> list[int]:
        """Processes of the present attempt's ranks."""
        agent = self.agent()
        return [] if agent is None else sorted(descendants(agent))

    def end(self) -> None:
        """End the service and the job."""
        agent, ranks = self.agent(), self.ranks()
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        if agent is not None:
            _signal(agent, signal.SIGKILL)
        while any(Path(f"/proc/{pid}").exists() for pid in ranks):
            time.sleep(POLL_S)  # they die with it

    def counts(self) -> Counter[str]:
        """What agents wrote down of changes, over all attempts."""
        lines = (
            json.loads(line)["event"]
            for folder in self.attempts()
            for line in (folder / "events.jsonl").read_text().splitlines()
        )
        return Counter(line for line in lines if line in CHANGES)


def check(rows: dict[int, list[Row]], calm: dict[int, float] | None = None) -> list[str]:
    """What is wrong with the steps that count: those done last, where some were done again."""
    wrong, kept = [], {step: latest(parts) for step, parts in rows.items()}
    if missing := set(range(1, max(kept) + 1)) - kept.keys():
        wrong.append(f"steps {sorted(missing)[:5]} are missing")
    seen: set[tuple[int, int]] = set()
    for step, parts in kept.items():
        ids = [(part.epoch, one) for part in parts for one in part.ids]
        if len({part.size for part in parts}) != 1 or len(parts) != parts[0].size:
            wrong.append(f"step {step} was done by {len(parts)} of {parts[0].size} ranks")
        if len(ids) != BATCH:
            wrong.append(f"step {step} has {len(ids)} samples")
        if seen & {*ids}:
            wrong.append(f"step {step} has samples of an earlier one")
        seen |= {*ids}
    if calm is not None:
        ours = losses_of(rows)
        # Of the loss it began with: sums of other ranks are rounded otherwise, and in ten thousand
        # steps that grows, while losses fall. What is lost or mixed up shows at once.
        scale = statistics.median([*calm.values()][:FIRST])
        apart = {s: abs(ours[s] - calm[s]) / scale for s in ours if s in calm}
        worst = max(apart, key=lambda step: apart[step])
        print(f"losses of {len(apart)} steps differ by at most {apart[worst]:.1e} (step {worst})")
        if apart[worst] > APART:
            wrong.append(f"the loss of step {worst} differs by {apart[worst]:.1e}")
    return wrong


def soak(folder: Path, faults: int, seed: int) -> list[str]:
    """Strike so often; what is wrong afterwards."""
    (folder / "steps").mkdir()
    one = Soak(folder, random.Random(seed))
    one.wish(0)
    one.start()
    try:
        one.recover()
        for number in range(faults):
            fault = one.rng.choices([*FAULTS], [*FAULTS.values()])[0]
            one.strike(fault)
            took = one.recover()
            print(f"{number + 1:4d}  {fault:16s} {took:6.2f} s  slots {one.slots}", flush=True)
    finally:
        one.end()
    rows = without_abandoned(read_rows(folder / "steps"))
    print(dict(one.done), dict(one.counts()), f"{max(rows)} steps")
    return check(rows, _calm(folder, one.layers, max(rows)))


def _calm(folder: Path, layers: int, steps: int) -> dict[int, float]:
    """The losses of a run that nobody disturbs."""
    noted = folder / "calm"
    noted.mkdir()
    script = str(Path(__file__).with_name("live_resize_job.py"))
    epochs = str(steps * BATCH // 2048 + 1)
    command = [sys.executable, script, str(noted), str(layers), epochs]
    plain = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    subprocess.run(command, check=True, env={**plain, "OMP_NUM_THREADS": "1"})
    return losses_of(read_rows(noted))


def _last_row(path: Path) -> Row | None:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 4096, 0))
        lines = [line for line in file.read().splitlines() if line.endswith(b"]]")]
    whole = [line for line in lines if line.startswith(b"[")]
    return Row.of(whole[-1]) if whole else None


def _signal(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return  # it was quicker


def main() -> int:
    """Strike, check, and say what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=None, help="a folder to work in and keep")
    asked = parser.parse_args()
    if asked.keep is not None:
        asked.keep.mkdir(parents=True)
        wrong = soak(asked.keep, asked.faults, asked.seed)
    else:
        with tempfile.TemporaryDirectory(prefix="weft-faults-") as folder:
            wrong = soak(Path(folder), asked.faults, asked.seed)
    for line in wrong[:20]:
        print("WRONG:", line)
    print("nothing hung, nothing was lost" if not wrong else f"{len(wrong)} things are wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
