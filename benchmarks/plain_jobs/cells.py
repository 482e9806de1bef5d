"""Single simulations of plain jobs, and what came out of them, kept on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass
from pathlib import Path

import weft
from benchmarks.measure import ROOT, fingerprint

OUT = ROOT / "out" / "plain_jobs.json"
METRICS = (
    "avg_jct_h",
    "p99_jct_h",
    "avg_queue_h",
    "p95_queue_h",
    "short_queue_h",
    "slowdown_10s",
    "slowdown_10min",
    "worst_ftf",
    "restarts_per_job",
    "makespan_h",
)
# What results of policies that predict depend on, beside the simulator.
OURS = (
    "policies/weft",
    "pieces/order",
    "pieces/pack.py",
    "predict",
    "core/knowledge/prediction.py",
)

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload under one policy that is told remaining times by one predictor."""

    trace: str
    load: float
    jobs: int
    seed: int
    policy: str
    predictor: str
    cluster: str

    @property
    def key(self) -> str:
        """What it is kept by; a cell of ours or with a prediction is not that of older code."""
        text = " | ".join(map(str, astuple(self)))
        predicts = self.predictor not in ("none", "oracle")
        return (
            f"{text} | {fingerprint(OURS)}" if predicts or self.policy.startswith("weft") else text
        )


def simulate(cell: Cell) -> Numbers:
    """Metrics, and CPU seconds of the whole simulation."""
    began = time.process_time()
    result = weft.compare(
        cell.trace,
        cell.policy,
        cell.cluster,
        seeds=(cell.seed,),
        jobs=cell.jobs,
        load=cell.load,
        predictor=cell.predictor,
    )
    metrics = next(iter(result.outcomes.values()))[0].metrics
    numbers = {name: float(metrics[name]) for name in METRICS}
    return {**numbers, "cpu_s": time.process_time() - began}


class Store:
    """Results by cell; each is on disk as soon as there is one."""

    def __init__(self, path: Path = OUT, *, fresh: bool = False) -> None:
        self._path = path
        self._known: dict[str, Numbers] = {}
        if path.is_file() and not fresh:
            self._known = json.loads(path.read_text())

    def get(self, cell: Cell) -> Numbers | None:
        """What came out, if it was simulated."""
        return self._known.get(cell.key)

    def fill(self, cells: Iterable[Cell], processes: int) -> Iterator[Cell]:
        """Simulate what is missing, each cell as it is done."""
        missing = list({cell.key: cell for cell in cells if cell.key not in self._known}.values())
        if not missing:
            return
        with ProcessPoolExecutor(processes) as pool:
            running = {pool.submit(simulate, cell): cell for cell in missing}
            for done in as_completed(running):
                self._known[running[done].key] = done.result()
                self._write()
                yield running[done]

    def _write(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._known, indent=1))
        part.replace(self._path)
