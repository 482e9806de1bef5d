"""What `weft profile` measured: the tables that ship, and a person's own.

`h200.json` has twelve training jobs in all pairs on an NVIDIA H200, under the driver's time slicing
and under MPS, nine models over batch sizes alone, and the gradient noise of two tasks as they are
learnt; `python -m benchmarks.gpu_profiles` measures them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig
from weft.perf.sharing.pair_table import Pairs

Row = tuple[str, str, float, float]


@cache
def load_shipped_pairs(sharing: str) -> Pairs:
    """Speeds of pairs of workloads `MODEL:BATCH`, under time slicing or MPS."""
    whole = json.loads(files("weft.perf").joinpath("data/h200.json").read_text())
    return _pairs((first, other, a, b) for first, other, a, b in whole["pairs"].get(sharing, ()))


@cache
def read_measured(path: Path) -> Pairs:
    """A file that `weft profile --beside … --out` wrote; its names are models of jobs.

    A pair is found by `MODEL:BATCH` and by the models alone, where the first one measured counts.
    """
    try:
        return _pairs(_rows(json.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise InvalidConfig(f"cannot read pairs from {path}: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise InvalidConfig(
            f"{path} is not a table of pairs: {error!r}",
            hint="`weft profile --beside COMMAND --out FILE -- COMMAND` writes one",
        ) from error


def _rows(table: Any) -> Iterable[Row]:
    for pair in table["together"]:
        ends = [table["alone"][pair[which]] for which in ("one", "other")]
        # Above its speed alone a job is only by chance.
        speeds = [min(float(pair[f"speed_{which}"]), 1.0) for which in ("one", "other")]
        if min(speeds) <= 0.0:
            raise ValueError(f"a speed of {min(speeds)}")
        tags = [f"{end['model']}:{end['batch']}" for end in ends]
        yield tags[0], tags[1], speeds[0], speeds[1]
        yield str(ends[0]["model"]), str(ends[1]["model"]), speeds[0], speeds[1]


def _pairs(rows: Iterable[Row]) -> Pairs:
    speeds: dict[tuple[str, str], tuple[float, float]] = {}
    for first, other, a, b in rows:
        if (other, first) not in speeds:
            speeds.setdefault((first, other), (a, b))
    return Pairs(speeds)
