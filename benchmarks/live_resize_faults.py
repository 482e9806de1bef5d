"""Kill and freeze whoever takes part in a live resize, at random moments; nothing may be lost.

    python -m benchmarks.live_resize_faults --faults 200 [--device cuda] [--only "service ended"]

A service (`benchmarks.live_resize_service`) runs one job of a real training that changes its ranks
again and again. While it does, a new rank, an old one, the agent or the service is killed, a new
rank is stopped again and again, or another change is asked for: as soon as a change has begun,
while new ranks get ready, or while the groups of the next epoch are formed and joined. A change
that was over before anybody could be struck does not count; it goes on until `--faults` have hit.
A service that is asked to end must have ended within 10 s. After every fault the job must train on,
on the devices that it was given last. At the end every step must have been done by whole gangs: the
samples of each epoch once, in steps without a gap, with the losses of a run that nobody disturbed.
With `--device cuda` all ranks share the first GPU, each as if on a machine of its own. Ended early,
by a signal too, it leaves nothing that trains on.
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
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.live_resize_job import BATCH, Row, latest, losses_of, read_rows, without_abandoned
from benchmarks.live_resize_service import SLOTS, WISH
from weft.wire.attempt import AGENT_LOG, CLAIM, EVENTS
from weft.wire.processes import alive, descendants, find_holding, start_time

FAULTS = {
    "new rank killed": 30,
    "new rank stopped": 10,
    "old rank killed": 15,
    "agent killed": 10,
    "service killed": 15,
    "service ended": 10,
    "another change": 10,
}
MOMENTS = ("at once", "getting ready", "switching")
END_S = 10.0  # for a service that is asked to end
BEGIN_S = 10.0  # a change that is not made live by then is made through a checkpoint
SWITCH_S = 0.08  # groups are formed, the state is sent, and it is agreed upon
FIRST_GUESS_S = 0.5  # of how long new ranks take to get ready
HANG_S = 400.0  # without a step where it should be: ranks may all have to import torch
SAVE_S = 2.0
APART, FIRST = 1e-4, 100  # of the losses of the first steps
POLL_S, QUICK_S = 0.02, 0.002
QUIET_S = 0.3  # in which a process that was just started shows up
BEGINS, CHANGES = "meeting", ("meeting", "adopted", "settled", "dropped", "undone")


@dataclass
class ChangeLog:
    """What an agent wrote down of changes, read on from where it was read to."""

    path: Path
    at: int = 0
    seen: list[str] = field(default_factory=list)

    def read(self) -> list[str]:
        """All that was written so far, oldest first."""
        with self.path.open("rb") as file:
            file.seek(self.at)
            whole, _, _ = file.read().rpartition(b"\n")
        self.at += len(whole) + 1 if whole else 0
        self.seen += [json.loads(line)["event"] for line in whole.splitlines()]
        self.seen = [event for event in self.seen if event in CHANGES]
        return self.seen


@dataclass
class Soak:
    """One service, one job, and what was done to them."""

    folder: Path
    rng: random.Random
    device: str = "cpu"
    layers: int = 1
    done: Counter[str] = field(default_factory=Counter)
    child: subprocess.Popen[bytes] | None = None
    slots: tuple[int, ...] = (0,)
    still: tuple[int, int] | None = None  # a process and when it began
    took_s: deque[float] = field(default_factory=lambda: deque([FIRST_GUESS_S], maxlen=9))
    ends_s: list[float] = field(default_factory=list)

    @property
    def hits(self) -> int:
        """Faults that met a change."""
        return sum(self.done.values())

    def start(self) -> None:
        """The service; its job goes on if there is one."""
        command = [sys.executable, "-m", "benchmarks.live_resize_service"]
        args = [str(self.folder), str(self.layers), str(SAVE_S), self.device]
        with (self.folder / "service.log").open("ab") as log:
            self.child = subprocess.Popen([*command, *args], stdout=log, stderr=log)

    def wish(self, *slots: int) -> None:
        """Ask for these slots."""
        self.slots = slots
        fresh = self.folder / f".{WISH}"
        fresh.write_text(json.dumps(slots))
        fresh.replace(self.folder / WISH)

    def change(self, *, grow: bool = False) -> None:
        """Ask for other slots than it has; to `grow` is to have one among them that is new."""
        slots = self.slots
        while slots == self.slots or (grow and {*slots} <= {*self.slots}):
            count = self.rng.choice((1, 1, 2, 2, 3, 4))
            slots = tuple(sorted(self.rng.sample(range(SLOTS), count)))
        self.wish(*slots)

    def strike(self, fault: str) -> str:
        """Ask for a change and do harm while it is made; when, or nothing if it was over before."""
        before, moment = set(self.ranks()), self.rng.choice(MOMENTS)
        log = self._log()
        known = 0 if log is None else len(log.read())
        if fault.startswith("new") and len(self.slots) == SLOTS:
            self.change()
            return ""  # there is no slot for a new one
        self.change(grow=fault.startswith("new"))
        if log is None or not self._wait_for(moment, log, known):
            return ""
        hit = self._harm(fault, before, log, known)
        if not hit:
            return ""
        self.done[f"{fault}, {moment}"] += 1
        return moment

    def _log(self) -> ChangeLog | None:
        newest = self.attempts()[:1]
        return ChangeLog(newest[0] / EVENTS) if newest and (newest[0] / EVENTS).exists() else None

    def _wait_for(self, moment: str, log: ChangeLog, known: int) -> bool:
        """Whether that moment of the change came; False if the change was over before."""
        until = time.monotonic() + BEGIN_S
        while not log.read()[known:]:
            if time.monotonic() > until:
                return False
            time.sleep(QUICK_S)
        began = time.monotonic()
        if moment == "getting ready":
            until = began + self.rng.uniform(0.0, statistics.median(self.took_s))
            while time.monotonic() < until and _under_way(log, known):
                time.sleep(QUICK_S)
        elif moment == "switching":
            while not self._forming(log.path.parent) and _under_way(log, known):
                time.sleep(QUICK_S)
            self.took_s.append(time.monotonic() - began)
            time.sleep(self.rng.uniform(0.0, SWITCH_S))
        return _under_way(log, known)

    def _forming(self, attempt: Path) -> bool:
        """Whether the groups of the next epoch are being formed: they meet in a file."""
        return any((attempt.parent / "checkpoints").glob(f".ranks-{attempt.name}-*"))

    def _harm(self, fault: str, before: set[int], log: ChangeLog, known: int) -> bool:
        """Do it; whether the change was still under way."""
        if fault in ("service killed", "service ended") and self.child is not None:
            asked = time.monotonic()
            self.child.send_signal(signal.SIGKILL if fault == "service killed" else signal.SIGTERM)
            hit = _under_way(log, known)
            self.child.wait(END_S)
            self.ends_s.append(time.monotonic() - asked)
            self.start()
            return hit
        if fault == "another change":
            hit = _under_way(log, known)
            self.change()
            return hit
        pid = self._find_victim(fault, before, log, known)
        if pid is None:
            return False
        hit = _under_way(log, known)
        if fault == "new rank stopped" and (began := start_time(pid)) is not None:
            self.still = (pid, began)
            self._keep_still()
        else:
            _signal(pid, signal.SIGKILL)
        return hit

    def _find_victim(self, fault: str, before: set[int], log: ChangeLog, known: int) -> int | None:
        if fault == "agent killed":
            return self.agent()
        while True:
            there = self.ranks()
            pids = [pid for pid in there if (pid in before) != fault.startswith("new")]
            if pids:
                return self.rng.choice(pids)
            if not _under_way(log, known):
                return None
            time.sleep(QUICK_S)  # it was asked for, and is being started

    def recover(self) -> float:
        """Wait until it trains on the slots that were asked for last; seconds that took."""
        began = time.monotonic()
        while time.monotonic() < began + HANG_S:
            self._keep_still()
            if self._trains(began):
                self.still = None
                return time.monotonic() - began
            time.sleep(QUICK_S if self.still else POLL_S)
        raise SystemExit(f"it hangs: {self.slots} after {dict(self.done)}; see {self.folder}")

    def _keep_still(self) -> None:
        """Agents wake whom a signal stopped, and end whom somebody stops again and again."""
        if self.still is not None and alive(*self.still):
            _signal(self.still[0], signal.SIGSTOP)

    def _trains(self, since: float) -> bool:
        noted = (self.folder / "steps" / f"{pid}.jsonl" for pid in self.ranks())
        last = [_last_row(path) for path in noted if path.exists()]
        fresh = [row for row in last if row is not None and row.began > since]
        whole = {row.size for row in fresh} == {len(self.slots)}
        return whole and sorted(row.device for row in fresh) == [*self.slots]

    def attempts(self) -> list[Path]:
        """Folders of attempts, the last one first."""
        folders = (self.folder / "state" / "jobs" / "job").glob("[0-9]*")
        return sorted(folders, key=lambda path: int(path.name), reverse=True)

    def agent(self) -> int | None:
        """The process of the present attempt's agent, if it lives."""
        for folder in self.attempts()[:1]:
            claim = folder / CLAIM
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
        """End the service and the job: agents hold their log open, ranks die with them."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + QUIET_S:
            logs = [folder / AGENT_LOG for folder in self.attempts()[:2]]
            agents = {pid for log in logs for pid in find_holding(log, writing=True)}
            for pid in agents | {pid for agent in agents for pid in descendants(agent)}:
                _signal(pid, signal.SIGKILL)
                quiet_since = time.monotonic()
            time.sleep(POLL_S)

    def counts(self) -> Counter[str]:
        """What agents wrote down of changes, over all attempts."""
        lines = (
            json.loads(line)["event"]
            for folder in self.attempts()
            for line in (folder / EVENTS).read_text().splitlines()
        )
        return Counter(line for line in lines if line in CHANGES)


def _under_way(log: ChangeLog, known: int) -> bool:
    """Whether a change that began after the first `known` lines is not answered yet."""
    new = log.read()[known:]
    return bool(new) and new[-1] == BEGINS


def check(rows: dict[int, list[Row]], calm: dict[int, float] | None = None) -> list[str]:
    """What is wrong with the steps that count: those done last, where some were done again."""
    wrong, kept = [], {step: latest(parts) for step, parts in rows.items()}
    if missing := set(range(1, max(kept) + 1)) - kept.keys():
        wrong.append(f"steps {sorted(missing)[:5]} are missing")
    seen: set[tuple[int, int]] = set()
    for step, parts in kept.items():
        ids = [(part.epoch, id_) for part in parts for id_ in part.ids]
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


def soak(
    folder: Path, faults: int, seed: int, device: str = "cpu", only: Sequence[str] = ()
) -> list[str]:
    """Strike until so many have hit; what is wrong afterwards."""
    weights = {fault: weight for fault, weight in FAULTS.items() if not only or fault in only}
    (folder / "steps").mkdir()
    bed, over, waits = Soak(folder, random.Random(seed), device), 0, []
    bed.wish(0)
    bed.start()
    try:
        bed.recover()
        while bed.hits < faults:
            fault = bed.rng.choices([*weights], [*weights.values()])[0]
            moment = bed.strike(fault)
            over += not moment
            waits.append(bed.recover())
            hit = f"{fault}, {moment}" if moment else f"({fault}: too late)"
            print(f"{bed.hits:4d}  {hit:32s} {waits[-1]:6.2f} s  slots {bed.slots}", flush=True)
    finally:
        bed.end()
    rows = without_abandoned(read_rows(folder / "steps"))
    show(bed, over, waits, max(rows))
    return check(rows, _calm(folder, bed, max(rows)))


def show(bed: Soak, over: int, waits: list[float], steps: int) -> None:
    """What was hit when, and what became of the changes."""
    for fault in FAULTS:
        counts = [bed.done[f"{fault}, {moment}"] for moment in MOMENTS]
        each = ", ".join(f"{count} {when}" for count, when in zip(counts, MOMENTS, strict=True))
        print(f"{fault:16s} {sum(counts):4d}: {each}")
    print(f"{bed.hits} faults hit a change, {over} changes were over before; {steps} steps")
    print(f"changes: {dict(bed.counts())}")
    if bed.ends_s:
        print(
            f"the service was gone after at most {max(bed.ends_s):.1f} s ({len(bed.ends_s)} times)"
        )
    print(f"trains on after {statistics.median(waits):.1f} s (median), {max(waits):.1f} s at most")


def _calm(folder: Path, bed: Soak, steps: int) -> dict[int, float]:
    """The losses of a run that nobody disturbs."""
    noted = folder / "calm"
    noted.mkdir()
    script = str(Path(__file__).with_name("live_resize_job.py"))
    epochs = str(steps * BATCH // 2048 + 1)
    more = [str(bed.layers), epochs, str(SAVE_S), bed.device]
    command = [sys.executable, "-P", script, str(noted), *more]  # `weft` is a folder beside it too
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
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", choices=[*FAULTS], action="append", default=[])
    parser.add_argument("--keep", type=Path, default=None, help="a folder to work in and keep")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if asked.keep is not None:
        asked.keep.mkdir(parents=True)
        wrong = soak(asked.keep, asked.faults, asked.seed, asked.device, asked.only)
    else:
        with tempfile.TemporaryDirectory(prefix="weft-faults-") as folder:
            wrong = soak(Path(folder), asked.faults, asked.seed, asked.device, asked.only)
    for line in wrong[:20]:
        print("WRONG:", line)
    print("nothing hung, nothing was lost" if not wrong else f"{len(wrong)} things are wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
