"""Put measured tables together as the package's own data."""

from __future__ import annotations

from pathlib import Path


def ship(folder: Path) -> None:
    """Write `weft/perf/data/h200.json` from what `python -m benchmarks.gpu_profiles` measured."""
    raise NotImplementedError(folder)
