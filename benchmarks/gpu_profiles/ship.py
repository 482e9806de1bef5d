"""Put measured tables together as the package's own data."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from weft.perf.sharing.interference import load_shipped, rates

HOME = (
    Path(__file__).resolve().parents[2]
    / "packages"
    / "weft"
    / "src"
    / "weft"
    / "perf"
    / "data"
    / "h200.json"
)
SHARING = ("timeslicing", "mps")


def ship(folder: Path) -> None:
    """Write `weft/perf/data/h200.json` from what `python -m benchmarks.gpu_profiles` measured."""
    tables = {sharing: read(folder / f"pairs-{sharing}.json") for sharing in SHARING}
    best = fastest(tables)
    pairs = {sharing: speeds(table, best) for sharing, table in tables.items()}
    whole = {
        "gpu": "NVIDIA H200, 141 GB",
        "by": "python -m benchmarks.gpu_profiles",
        "alone": sizes(folder),
        "pairs": pairs,
        "noise": noises(folder),
    }
    HOME.write_text(json.dumps(whole, indent=1) + "\n")
    for sharing, rows in pairs.items():
        print(f"{sharing}: {len(rows)} pairs, {against_model(rows, sharing)}")


def read(path: Path) -> Any:
    """A file of `weft profile`."""
    return json.loads(path.read_text())


def name(row: dict[str, Any]) -> str:
    """What a workload is called."""
    return f"{row['model']}:{row['batch']}"


def fastest(tables: dict[str, Any]) -> dict[str, float]:
    """The shortest step alone of each workload: alone, MPS makes no difference."""
    steps: dict[str, float] = {}
    for table in tables.values():
        for row in table["alone"]:
            steps[name(row)] = min(row["step_s"], steps.get(name(row), row["step_s"]))
    return steps


def speeds(table: Any, best: dict[str, float]) -> list[list[Any]]:
    """Rows of two workloads and their speeds, none above its speed alone."""
    rows = []
    for pair in table["together"]:
        ends = []
        for which in ("one", "other"):
            alone = table["alone"][pair[which]]
            speed = pair[f"speed_{which}"] * best[name(alone)] / alone["step_s"]
            ends.append((name(alone), round(min(speed, 1.0), 4)))
        rows.append([ends[0][0], ends[1][0], ends[0][1], ends[1][1]])
    return rows


def sizes(folder: Path) -> dict[str, dict[str, float]]:
    """Each model at each batch size alone."""
    by_name = {}
    for path in sorted(folder.glob("alone-*.json")):
        model = path.stem.removeprefix("alone-")
        for point in read(path)["points"]:
            seconds = {key: round(point[key], 6) for key in ("step_s", "data_s", "compute_s")}
            memory = {"mem_gb": round(point["mem_gb"], 3)}
            by_name[f"{model}:{point['batch']}"] = seconds | memory
    return by_name


def noises(folder: Path) -> dict[str, list[dict[str, float]]]:
    """Noise scale of two tasks as they are learnt: by definition, and as estimated on the way."""
    return {
        path.stem.removeprefix("noise-"): [
            {
                "step": check["step"],
                "loss": round(check["loss"], 4),
                "noise": round(check["direct"]["noise"], 1),
                "estimated": round(check["running"]["noise"], 1),
            }
            for check in read(path)
        ]
        for path in sorted(folder.glob("noise-*.json"))
    }


def against_model(rows: list[list[Any]], sharing: str) -> str:
    """How far the shipped interference model is from these speeds."""
    off = []
    for first, other, *seen in rows:
        group = [load_shipped().known[tag] for tag in (first, other)]
        predicted = rates(group, sharing)
        off += [abs(float(a) / b - 1.0) for a, b in zip(predicted, seen, strict=True)]
    tenth = statistics.quantiles(off, n=10)[-1]
    return f"the model is off by {statistics.median(off):.1%} (median), {tenth:.1%} (one in ten)"
