"""What it costs a real PyTorch job to change its ranks: live, and through a checkpoint.

    python -m benchmarks.live_resize [--quick] [--device cuda [--ranks 1,2,4,3,1]]
    python -m benchmarks.live_resize [--quick] --engine slurm [--spread]
    python -m benchmarks.live_resize [--quick] --framework hf|lightning|fsdp2

A job on the warm local engine goes from 1 to 2, 4, 2 and 1 ranks, once as it trains and once by a
stop and a start from its checkpoint, with states of 10, 100 and 500 MB. A pause is from the end of
the last step before to the beginning of the first one after, on the last rank to begin. Reported
beside it: steps that were done while new ranks got ready, and how far the losses are from those of
one rank that nobody disturbed: live, restarted, and of the second number of ranks alone (steady).
Both ways share one run, so that the machine's load is in both. With `--device cuda` a job of one
rank moves from process to process on the first GPU; with `--ranks` as well, that many NCCL ranks
share it, each as if on a machine of its own, and how soon the memory of those that left is free is
measured too. `--engine` takes a throw-away cluster of `tests.clusters.testbed` instead; with
`--spread` the ranks are in turn on two of its nodes. `--live` leaves the restarts and the
undisturbed run out. With `--framework` the loop is that of the Hugging Face Trainer or of
Lightning, or `wt.plan` divides the model by FSDP2. `--torchrun` also runs a plain script under
torchrun's elastic agent, which restarts all ranks at each change.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from tests.clusters.testbed import TESTBEDS

from benchmarks.live_resize_job import Row, last_words, layers_of, losses_of, read_rows
from benchmarks.live_resize_torchrun import measure_torchrun
from weft.app.engine import build_engine
from weft.core.errors import EngineError
from weft.core.events.event import (
    Event,
    Failed,
    Finished,
    Resizable,
    Resized,
    ResizeFailed,
    Stopped,
)
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.protocols import Engine
from weft.engines.local import LocalEngine
from weft.run_terms import Processes
from weft.wire.attempt import EVENTS

Slots = tuple[int, ...]
Begin = Callable[[Path], Awaitable[Engine]]
# The slots of a job, one after the other. On a GPU they are of the machine's CPUs still: all that
# computes is the one GPU, and another slot is nothing but another process there.
PLACES: dict[str, tuple[Slots, ...]] = {
    "cpu": tuple(tuple(range(size)) for size in (1, 2, 4, 2, 1)),
    "cuda": ((0,), (1,), (0,), (1,), (0,)),
}
STATES_MB = {"cpu": (10.0, 100.0, 500.0), "cuda": (10.0, 100.0, 500.0, 2000.0)}
EPOCHS = 1_000
SAVE_S = 3600.0  # never, but when it is stopped
LIMIT_S = 300.0
GROW_S, GROW_MB_S, SHRINK_S = 0.1, 0.001, 0.05  # what we aim at
SETTLE_STEPS = 3
FREE_S, FREE_MIB = 3.0, 64.0  # how long memory is watched after ranks left, and what is noise in it


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the ranks; `steps` were done between the request and the switch.

    Of these, the slowest took `slow_s`, not counting those that began with a checkpoint; `usual_s`
    is the median of those before the request.
    `freed_s` is how long after the switch the GPU's memory was down to what it then stayed at.
    """

    state_mb: float
    was: Slots
    to: Slots
    live_s: float
    steps: int
    ready_s: float
    slow_s: float = 0.0
    usual_s: float = 0.0
    freed_s: float | None = None
    restart_s: float = 0.0

    @property
    def name(self) -> str:
        """How many ranks it was and is, or that it only moved."""
        was, to = len(self.was), len(self.to)
        return "move  " if was == to else f"{was} -> {to}"

    @property
    def aim_s(self) -> float:
        """The longest pause that we aim at."""
        sends = not {*self.to} <= {*self.was}
        return GROW_S + GROW_MB_S * self.state_mb if sends else SHRINK_S


class Trial:
    """One job on one engine."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        name: str,
        state_mb: float,
        device: str = "cpu",
        *,
        spread: bool = False,
        framework: str = "",
    ) -> None:
        self.name, self._spread = JobId(name), spread
        self._engine, self.noted = engine, folder / f"{name}-steps"
        self.noted.mkdir()
        script = "live_resize_frameworks.py" if framework else "live_resize_job.py"
        command = (str(Path(__file__).with_name(script)), *([framework] if framework else []))
        args = (str(self.noted), str(layers_of(state_mb)), str(EPOCHS), str(SAVE_S), device)
        launch = Launch(
            (sys.executable, *command, *args),
            workdir=str(folder),
            env={"OMP_NUM_THREADS": "1"},
            processes=Processes.PER_GPU,
        )
        self._job = Job(self.name, demand=Demand(1, min=1, max=4), launch=launch)
        self._news = engine.events()
        self.attempt, self._epoch = 0, 0

    async def until(self, kind: type[Event]) -> Event:
        """The next event of a kind."""
        async with asyncio.timeout(LIMIT_S):
            async for event in self._news:
                if isinstance(event, kind):
                    return event
                if isinstance(event, (Failed, ResizeFailed, Finished)):
                    raise EngineError(f"the job did not go on: {event}")
        raise EngineError("no news")

    async def start(self, *slots: int) -> None:
        """A new attempt, until it trains."""
        self.attempt += 1
        self._epoch = 0
        await self._engine.start(self._job, await self._on(slots), self.attempt)
        await self.until(Resizable)

    async def stop(self) -> None:
        """Through a checkpoint."""
        await self._engine.stop(self._job.id, self.attempt, 60.0)
        await self.until(Stopped)

    async def resize(self, *slots: int) -> None:
        """As it trains."""
        await self.ask(*slots)
        await self.until(Resized)

    async def ask(self, *slots: int) -> None:
        """The same without waiting for it."""
        self._epoch += 1
        await self._engine.resize(self._job, await self._on(slots), self.attempt, self._epoch)

    async def steps(self, count: int) -> None:
        """Until so many more steps are done."""
        goal = self.last_step() + count
        async with asyncio.timeout(LIMIT_S):
            while self.last_step() < goal:
                await asyncio.sleep(0.05)

    def last_step(self) -> int:
        """The last step that was noted."""
        return max(read_rows(self.noted), default=0)

    def saved(self) -> set[int]:
        """The steps after which a checkpoint was taken."""
        logs = self.noted.parent.glob(f"state/jobs/{self.name}/*/{EVENTS}")
        lines = (json.loads(line) for log in logs for line in log.read_text().splitlines())
        return {line["step"] for line in lines if line["event"] == "saved"}

    async def _on(self, slots: tuple[int, ...]) -> Allocation:
        nodes = await self._engine.nodes()
        if not self._spread:
            return Allocation((Slice(nodes[0].id, slots),))
        same = [node for node in nodes if node.kind == nodes[0].kind]
        parts = [Slice(node.id, slots[at::2]) for at, node in enumerate(same[:2])]
        return Allocation(tuple(part for part in parts if part.gpus))


class GpuMemory:
    """The first GPU's used memory in MiB, noted ten times a second as context of a change."""

    def __init__(self) -> None:
        query = "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0", "-lms", "100"
        self._child = subprocess.Popen(["nvidia-smi", *query], stdout=subprocess.PIPE, text=True)
        self._seen: list[tuple[float, float]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> GpuMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()

    def freed_after(self, switched: float) -> float:
        """Seconds from a switch until no more was used than at the end."""
        later = [(at, used) for at, used in self._seen if at >= switched]
        least = later[-1][1] + FREE_MIB
        return max((at - switched for at, used in later if used > least), default=0.0)

    def _read(self) -> None:
        for line in self._child.stdout or ():
            self._seen.append((time.monotonic(), float(line)))


def find_slowest(
    rows: dict[int, list[Row]], after: float, to: Slots, saved: set[int]
) -> tuple[float, float]:
    """The slowest step between a time and the first change to slots `to`, and a usual one before.

    Each from the end of the step before it; those are left out that came after a checkpoint.
    """
    ends = {step: max(part.ended for part in parts) for step, parts in rows.items()}
    first = _first_step(rows, after, to)
    took = {step: ends[step] - ends[step - 1] for step in ends if step - 1 in ends.keys() - saved}
    slots = {part.device for part in rows[first - 1]}
    before = [
        took[step]
        for step, parts in rows.items()
        if step in took and ends[step] <= after and {part.device for part in parts} == slots
    ]
    beside = [took[step] for step in took if step < first and ends[step] > after]
    return max(beside, default=0.0), statistics.median(before[1:] or [0.0])


def find_pause(rows: dict[int, list[Row]], after: float, to: Slots) -> tuple[float, int, float]:
    """Of the first change to slots `to` after a time: its pause, steps until then, and when."""
    first = _first_step(rows, after, to)
    ended = max(part.ended for part in rows[first - 1])
    begins = max(part.began for part in rows[first])
    done = sum(1 for parts in rows.values() if after < max(p.ended for p in parts) <= ended)
    return begins - ended, done, ended - after


def _first_step(rows: dict[int, list[Row]], after: float, to: Slots) -> int:
    return min(
        step
        for step, parts in rows.items()
        if {part.device for part in parts} == {*to} and min(part.began for part in parts) > after
    )


async def open_engine(folder: Path) -> LocalEngine:
    """An engine of four slots that forks its ranks."""
    place, limit_s = folder / "state", LIMIT_S
    engine = LocalEngine(place, slots=4, cpu=True, pin=False, groups=False, resize_limit_s=limit_s)
    await engine.adopt(())
    async with asyncio.timeout(LIMIT_S):
        while not engine.is_warm:
            await asyncio.sleep(0.05)
    return engine


async def open_fleet(folder: Path, text: str) -> Engine:
    """The engine of a cluster that is up."""
    engine = build_engine(text, state=folder / "state")
    await engine.nodes()
    await engine.adopt(())
    return engine


async def measure(
    folder: Path,
    state_mb: float,
    device: str,
    places: Sequence[Slots],
    begin: Begin,
    *,
    spread: bool,
    framework: str,
    live_alone: bool,
) -> tuple[list[Change], dict[str, tuple[float, float]]]:
    """Every change both ways, and how far losses are off, of each way and of more ranks alone."""
    engine = await begin(folder)

    def make(name: str) -> Trial:
        return Trial(engine, folder, name, state_mb, device, spread=spread, framework=framework)

    with GpuMemory() if device == "cuda" else nullcontext() as memory:
        try:
            live = await _change_live(make("live"), state_mb, places, memory)
        except BaseException:  # also where it is cut off
            sys.stderr.write(last_words(folder) + "\n")
            raise
    if live_alone:
        await engine.close()
        return live, {}
    changes = await _restart(make("restarted"), live)
    count = max(read_rows(folder / "live-steps"))
    for name, slots in (("calm", (0,)), ("steady", places[1])):
        trial = make(name)
        await trial.start(*slots)
        await trial.steps(count)
        await trial.stop()
    await engine.close()
    return changes, {name: _compare(folder, name) for name in ("live", "restarted", "steady")}


def _compare(folder: Path, name: str) -> tuple[float, float]:
    """How far a loss is off at most from that of one rank: of its size, and of the first."""
    ours, theirs = (losses_of(read_rows(folder / f"{run}-steps")) for run in (name, "calm"))
    apart = {step: abs(ours[step] - theirs[step]) for step in ours.keys() & theirs.keys()}
    most = max(apart[step] / abs(theirs[step]) for step in apart)
    return most, max(apart.values()) / abs(theirs[min(theirs)])


async def _change_live(
    trial: Trial, state_mb: float, places: Sequence[Slots], memory: GpuMemory | None
) -> list[Change]:
    await trial.start(*places[0])
    changes = []
    for was, to in pairwise(places):
        await trial.steps(SETTLE_STEPS)
        asked = time.monotonic()
        await trial.resize(*to)
        await trial.steps(SETTLE_STEPS)
        rows = read_rows(trial.noted)
        pause_s, steps, ready_s = find_pause(rows, asked, to)
        freed_s = None
        if memory is not None and not {*was} <= {*to}:
            await asyncio.sleep(FREE_S)
            freed_s = memory.freed_after(asked + ready_s)
        slow_s, usual_s = find_slowest(rows, asked, to, trial.saved())
        change = Change(state_mb, was, to, pause_s, steps, ready_s, slow_s, usual_s, freed_s)
        changes.append(change)
        print(f"{change.name} paused {pause_s * 1e3:.0f} ms", file=sys.stderr, flush=True)
    await trial.stop()
    return changes


async def _restart(trial: Trial, live: list[Change]) -> list[Change]:
    await trial.start(*live[0].was)
    changes = []
    for change in live:
        await trial.steps(SETTLE_STEPS)
        asked = time.monotonic()
        await trial.stop()
        await trial.start(*change.to)
        await trial.steps(SETTLE_STEPS)
        pause_s, _, _ = find_pause(read_rows(trial.noted), asked, change.to)
        changes.append(replace(change, restart_s=pause_s))
    await trial.stop()
    return changes


def print_torchrun(
    state_mb: float, device: str, sizes: Sequence[int], changes: Sequence[Change]
) -> None:
    """The same numbers of ranks under torchrun, beside the live pauses."""
    with tempfile.TemporaryDirectory(prefix="weft-run-", ignore_cleanup_errors=True) as folder:
        took = measure_torchrun(Path(folder), layers_of(state_mb), device, sizes)
    for change, (pause_s, again) in zip(changes, took, strict=True):
        print(
            f"{state_mb:4.0f} MB  {change.name}  torchrun {pause_s * 1e3:6.0f} ms and {again} "
            f"steps done again, {pause_s / change.live_s:.1f}x of live",
            flush=True,
        )


def _cut_off(*_: object) -> None:
    raise SystemExit("it was cut off")


def main() -> int:
    """Print a table; 1 if a live change was no better than ten restarts at 100 MB and more."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10 MB alone")
    parser.add_argument("--device", choices=[*PLACES], default="cpu")
    parser.add_argument("--ranks", default="", help="numbers of ranks in turn: 1,2,4,3,1")
    parser.add_argument("--states", default="", help="MB of state, for example 10,100")
    parser.add_argument("--engine", choices=[*TESTBEDS], default="local")
    parser.add_argument("--spread", action="store_true", help="ranks on two nodes in turn")
    parser.add_argument("--framework", choices=["", "hf", "lightning", "fsdp2"], default="")
    parser.add_argument("--live", action="store_true", help="no restarts to compare with")
    parser.add_argument("--torchrun", action="store_true", help="the elastic agent of torchrun too")
    parser.add_argument("--json", type=Path, default=None, help="write the rows here too")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _cut_off)
    states = tuple(float(word) for word in asked.states.split(",") if word)
    usual = STATES_MB[asked.device]
    sizes = [int(word) for word in asked.ranks.split(",") if word]
    places = tuple(tuple(range(size)) for size in sizes) or PLACES[asked.device]
    states = states or (usual[:1] if asked.quick else usual)
    rows: list[Change] = []
    here = asked.engine == "local"
    for state_mb in states:
        with (
            nullcontext() if here else TESTBEDS[asked.engine]() as bed,
            tempfile.TemporaryDirectory(prefix="weft-live-", ignore_cleanup_errors=True) as folder,
        ):
            begin = open_engine if bed is None else partial(open_fleet, text=bed.engine)
            how = {"spread": asked.spread, "framework": asked.framework, "live_alone": asked.live}
            run = measure(Path(folder), state_mb, asked.device, places, begin, **how)
            changes, apart = asyncio.run(run)
        rows += changes
        for change in changes:
            print(
                f"{state_mb:4.0f} MB  {change.name}  live {change.live_s * 1e3:6.0f} ms "
                f"(aim {change.aim_s * 1e3:3.0f})  restart {change.restart_s * 1e3:6.0f} ms  "
                f"{change.restart_s / change.live_s:5.1f}x  "
                f"{change.steps} steps in {change.ready_s:.2f} s while ranks got ready, "
                f"the slowest {change.slow_s * 1e3:.0f} ms (usual {change.usual_s * 1e3:.0f})"
                + ("" if change.freed_s is None else f", memory free after {change.freed_s:.1f} s"),
                flush=True,
            )
        if asked.torchrun:
            print_torchrun(state_mb, asked.device, [len(slots) for slots in places], changes)
        for name, (off, of_first) in apart.items():
            print(
                f"{state_mb:4.0f} MB  losses {name} differ by at most {off:.1e} of their size, "
                f"{of_first:.1e} of the first",
                flush=True,
            )
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    large = [row for row in rows if row.state_mb >= 100.0 and not asked.live]
    return int(any(resize.restart_s < 10.0 * resize.live_s for resize in large))


if __name__ == "__main__":
    sys.exit(main())
