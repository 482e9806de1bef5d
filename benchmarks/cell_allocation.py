"""HiveD at 10,000 GPUs: cells bound and given back, and whole decisions.

1,250 nodes of 8 in racks of 5, with switches and sockets; 20 virtual clusters with cells of every
level that together own nine tenths. Cells are bound and given back in random order; then jobs
arrive one by one under `hived|fifo`, each decision starting one.
"""

from __future__ import annotations

import time

import numpy as np

from weft.core.events.event import Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.scheduler import Scheduler
from weft.policies.fifo import Fifo
from weft_papers.hived.cells import Cell, CellChain, FreeCells
from weft_papers.hived.wrapper import Hived

NODES, TENANTS, STEPS, JOBS = 1_250, 20, 20_000, 200
LEVELS = ("gpu", "switch", "socket", "node", "rack")
FAN = (1, 2, 2, 2, 5)


def run() -> dict[str, float]:
    """Microseconds of CPU time of a cell bound or given back, and of a decision."""
    return {
        "cell bound or given back, microseconds": 1e6 * bind_cells(),
        "decision that starts a job, microseconds": 1e6 * decide(),
    }


def bind_cells(seed: int = 0) -> float:
    """CPU seconds of one operation, half of them allocations."""
    rng = np.random.default_rng(seed)
    chain = CellChain("v100", LEVELS, FAN, 3, (0, 0, 0, 0, NODES // 5))
    free = FreeCells(chain)
    unbound = draw_assignment(rng, chain)
    held: list[tuple[int, Cell]] = []
    draws = rng.random((STEPS, 2))
    began = time.process_time()
    for dice, which in draws:
        levels = [level for level, count in enumerate(unbound) if count]
        if held and (dice < 0.5 or not levels):
            level, cell = held.pop(int(which * len(held)))
            free.release(cell)
            unbound[level] += 1
            continue
        level = levels[int(which * len(levels))]
        unbound[level] -= 1
        bound = free.allocate(level, unbound)
        if bound is None:
            raise AssertionError(f"a cell of level {level} within the assignment was refused")
        held.append((level, bound))
    return (time.process_time() - began) / STEPS


def draw_assignment(rng: np.random.Generator, chain: CellChain) -> list[int]:
    """Cells of every level that together make nine tenths of the cluster."""
    unbound, left = [0] * len(chain.fan), int(0.9 * chain.counts[0])
    while left > 0:
        level = int(rng.integers(len(chain.fan)))
        unbound[level] += 1
        left -= chain.sizes[level]
        if not FreeCells(chain).keeps(unbound):
            unbound[level] -= 1
            break
    return unbound


def decide() -> float:
    """CPU seconds of a decision that starts one job, on average."""
    cells = {f"t{i}@node": float(NODES // TENANTS) for i in range(TENANTS)}
    cluster = parse_cluster(f"{NODES}x8:v100")
    scheduler = Scheduler(Hived(Fifo(), cells), cluster)
    scheduler.step(0.0, [])
    took = 0.0
    for i in range(JOBS):
        job = Job(JobId(f"j{i}"), float(i), Demand(1 + i % 8), tenant=f"t{i % TENANTS}")
        began = time.process_time()
        scheduler.step(float(i), [Submitted(job)])
        took += time.process_time() - began
    assert len(scheduler.view(0.0).held()) == JOBS
    return took / JOBS
