"""Fit the sensitivity to CPU cores and memory that ships with the package, and state the error.

    python -m benchmarks.fit_host SYNERGY_FOLDER

writes `weft/perf/data/host.json`: six numbers a model, after the tables that were published with
Synergy (Mohan et al., OSDI 2022), and the largest and the median relative error over their points.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np

from weft.core.knowledge.profile import Sensitivity
from weft.perf.sharing.host import STARVED, HostShareSpeed, read_tables

OUT = Path("packages/weft/src/weft/perf/data/host.json")


def fitted(table: Sensitivity) -> HostShareSpeed:
    """A law with few numbers that comes close to a table."""
    speeds = np.array(table.speeds)
    cores, gb = np.array(table.cpus), np.array(table.mem_gb)
    top = float(speeds.max())
    need = next((m for j, m in enumerate(gb) if (speeds[:, j] > STARVED).all()), 0.0)
    need = 0.0 if need == gb[0] else float(need)
    plenty = speeds[:, -1]
    rising = plenty < top - 1e-9
    if rising.sum() < 2:
        return HostShareSpeed(top=top, core=top, need_gb=need)
    # The first point at the top tells as well: cores suffice there, and did not just before.
    used = np.flatnonzero(rising)
    used = np.append(used, used[-1] + 1)
    power, core = np.polyfit(np.log(cores[used]), np.log(plenty[used]), 1)
    stream, data = _storage(speeds[-1], gb, need, top)
    law = (top, float(np.exp(core)), float(power), stream, data, need)
    return HostShareSpeed(*(float(f"{value:.4g}") for value in law))


def _storage(most: np.ndarray, gb: np.ndarray, need: float, top: float) -> tuple[float, float]:
    """Rate without a cache and size of the data, from what memory does with all cores.

    Where storage is the limit the time of a sample falls linearly with memory.
    """
    known = [(m, 1.0 / w) for m, w in zip(gb, most, strict=True) if m >= need]
    bound = [(m, t) for (m, t) in known if t > 1.0 / top + 1e-9]
    if not bound:
        return 0.0, 0.0
    points = [*bound, known[len(bound)]][:2] if len(bound) < 2 else bound[:2]
    (m0, t0), (m1, t1) = next(pairwise(points))
    slope = (t0 - t1) / (m1 - m0)
    data = m0 + t0 / slope
    return 1.0 / (t0 + slope * m0), data


def errors(table: Sensitivity, law: HostShareSpeed) -> tuple[float, float]:
    """Median and largest relative error over the points of the table."""
    made = np.array(law.sample_grid().speeds)
    off = np.abs(made / np.array(table.speeds) - 1.0)
    return float(np.median(off)), float(off.max())


def main() -> None:
    fits = {}
    for name, table in read_tables(Path(sys.argv[1])).items():
        law = fitted(table)
        median, most = errors(table, law)
        print(f"{name:<12} median {median:6.1%}  largest {most:6.1%}  {law}")
        fits[name] = {
            "law": asdict(law),
            "error_median": round(median, 4),
            "error_max": round(most, 4),
        }
    OUT.write_text(json.dumps(fits, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
