"""Results on disk as `weft verify` reads them: our JSON, and a CSV that any simulator can write."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig
from weft.report.verify import EPS, JobRun, SimRun, Stretch

COLUMNS = ("job", "submit_s", "start_s", "end_s", "gpus")
CLAIM = re.compile(r"#\s*(\w+)(?: of (.+))?:\s*([^:]*)")
NUMBERS = ("gpus", "seeds", "jobs", "finished", "avg_jct_s")


def read_runs(path: Path, gpus: float | None = None) -> list[SimRun]:
    """The runs of a file: JSON of `weft compare --per-job`, or CSV."""
    try:
        text = path.read_text("utf-8-sig")
        if text.lstrip().startswith("{"):
            return list(_read_json(json.loads(text), gpus))
        return list(_read_csv(text.splitlines(), gpus))
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        hint = f"JSON with --per-job, or CSV with the columns {', '.join(COLUMNS)}"
        known = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidConfig(f"{path} cannot be read: {known}", hint=hint) from error


# ---- JSON


def _read_json(result: Mapping[str, Any], gpus: float | None) -> Iterator[SimRun]:
    if "loads" in result:
        for each in result["loads"]:
            for run in _read_json(each, gpus):
                yield replace(run, name=f"{run.name} load {each['load']}")
        return
    seeds = len(result.get("seeds", (0,)))
    for policy, whole in result["policies"].items():
        several = whole.get("by_seed")
        for number, one_result in enumerate(several or [whole]):
            rows = one_result["per_job"]
            jobs = {str(row["id"]): _read_job(policy, row) for row in rows}
            names = [str(row["id"]) for row in rows]
            yield SimRun(
                f"{policy} seed {number}" if several else policy,
                float(result["gpus"]) if gpus is None else gpus,
                jobs,
                _seconds(one_result["avg_jct_h"]),
                one_result["finished"],
                one_result["predictor"],
                seeds,
                intervals="interval95" in whole,
                total=one_result["jobs"],
                torn=tuple(name for name in jobs if names.count(name) > 1)
                if len(jobs) < len(names)
                else (),
                facts={"costs": "one simulation, one model of costs"},
            )


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else 3600.0 * hours


def _read_job(policy: str, row: Mapping[str, Any]) -> JobRun:
    end = row["end_s"]
    try:
        held = tuple(Stretch(*map(_read_stretch, stretch)) for stretch in row.get("held") or ())
        return JobRun(float(row["submit_s"]), None if end is None else float(end), held)
    except (TypeError, ValueError) as error:
        raise ValueError(f"job {row['id']} under {policy}: {error}") from error


def _read_stretch(value: float | None) -> float:
    """A time or a number of GPUs; the end of what is held to the end of the run is not known."""
    return inf if value is None else float(value)


# ---- CSV


def _read_csv(lines: Sequence[str], gpus: float | None) -> Iterator[SimRun]:
    claims: dict[tuple[str, str], str] = {}
    numbered: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if match := CLAIM.fullmatch(line.strip()):
            claims[match[1], (match[2] or "").strip()] = match[3].strip()
        elif line.strip() and not line.startswith("#"):
            numbered.append((number, line))
    reader = csv.DictReader(line for _, line in numbered)
    if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
        raise ValueError(f"no column {', '.join(missing)} in its first line")
    runs: dict[str, dict[str, list[tuple[float, bool, Stretch | None, float | None]]]] = {}
    for (number, _), row in zip(numbered[1:], reader, strict=True):
        jobs = runs.setdefault(row.get("run") or "run", {})
        jobs.setdefault(row["job"], []).append(_read_row(number, row))
    for name, jobs in runs.items():
        yield _run_of(name, jobs, claims, gpus)


def _read_row(
    line: int, row: Mapping[str, str | None]
) -> tuple[float, bool, Stretch | None, float | None]:
    """Return its submission, whether it finished if this is its last row, its GPUs and its end."""
    submit, gpus = _number(line, row, "submit_s"), _number(line, row, "gpus")
    start, end = _number(line, row, "start_s"), _number(line, row, "end_s")
    finished = row.get("finished") or "yes"
    if finished not in ("yes", "no"):
        raise ValueError(f"line {line}: finished is {finished!r}, expected yes or no")
    if submit is None:
        raise ValueError(f"line {line}: submit_s is empty, expected a number")
    if start is None:
        return submit, finished == "yes", None, end
    if gpus is None:
        raise ValueError(f"line {line}: gpus is empty, expected a number")
    stretch = Stretch(start, inf if end is None else end, gpus, _number(line, row, "startup_s"))
    return submit, finished == "yes", stretch, end


def _run_of(
    name: str,
    jobs: Mapping[str, Sequence[tuple[float, bool, Stretch | None, float | None]]],
    claims: Mapping[tuple[str, str], str],
    gpus: float | None,
) -> SimRun:
    texts = {key: claims.get((key, name), claims.get((key, ""), "")) for key, _ in claims}
    claimed = {key: _claim(key, text) for key, text in texts.items() if key in NUMBERS}
    seeds, total, finished = (claimed.get(key) for key in ("seeds", "jobs", "finished"))
    return SimRun(
        name,
        claimed.get("gpus") if gpus is None else gpus,
        {job: _job_of(rows) for job, rows in jobs.items()},
        claimed.get("avg_jct_s"),
        None if finished is None else int(finished),
        texts.get("knows") or None,
        None if seeds is None else int(seeds),
        intervals=texts.get("intervals") == "yes",
        total=None if total is None else int(total),
        torn=tuple(
            job for job, rows in jobs.items() if any(abs(row[0] - rows[0][0]) > EPS for row in rows)
        ),
    )


def _job_of(rows: Sequence[tuple[float, bool, Stretch | None, float | None]]) -> JobRun:
    """Its rows in any order; the one that begins last says how it ended."""
    held = tuple(stretch for _, _, stretch, _ in rows if stretch is not None)
    _, finished, _, end = max(rows, key=lambda row: -inf if row[2] is None else row[2].start)
    return JobRun(rows[0][0], end if finished else None, held)


def _number(line: int, row: Mapping[str, str | None], column: str) -> float | None:
    text = (row.get(column) or "").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise ValueError(f"line {line}: {column} is {text!r}, expected a number") from None


def _claim(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"# {key}: {text!r}, expected a number") from None
    if not (isfinite(number) and number >= 0.0):
        raise ValueError(f"# {key}: {text!r}, expected 0 or more")
    return number
