"""Microsoft Philly: the official JSON log, and the digested CSV that Pollux and Sia sample from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import Any

from weft.core.errors import TraceError
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.traces.draft import Format, Pair, TraceDraft, demand
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile, reading
from weft.traces.table import MISSING, TraceTable, date_of, first_day, seconds

STATES = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
ROWS = 117_325


def is_log(sample: FileSample) -> bool:
    """A JSON array of jobs with attempts."""
    text = sample.text.lstrip()
    return text.startswith("[") and '"attempts"' in text and '"jobid"' in text


def is_digest(sample: FileSample) -> bool:
    """One line per job, with a date and a virtual cluster."""
    return sample.header >= {"timestamp", "num_gpus", "duration"}


def load_log(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """`cluster_job_log`; `options.attempts` says how retries make one length."""
    draft = TraceDraft(cluster="philly", published=ROWS)
    entries = [(file.path, entry) for file in files for entry in _entries(file)]
    draft.rows = len(entries)
    moments = [_moment(entry, "submitted_time", path) for path, entry in entries]
    origin = first_day(moments)
    draft.origin = date_of(origin)
    for (path, entry), submitted in zip(entries, moments, strict=True):
        if not entry.get("attempts"):
            draft.dropped["no attempts"] += 1
        elif options.attempts == "split":
            draft.pairs += _split(entry, submitted, origin, path)
        else:
            draft.pairs.append(_join(entry, submitted - origin, options.attempts, path))
    return draft


def load_digest(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """`timestamp,duration,num_gpus,...`; rows have no id, user or state."""
    draft = TraceDraft(cluster="philly")
    rows: list[tuple[float, float, float, str]] = []
    for file in files:
        table = TraceTable(file)
        when, gpus = table.index("timestamp"), table.index("num_gpus")
        length, tenant = table.index("duration"), table.maybe("vc", "cluster")
        rows += (
            (
                table.moment(row, when),
                table.count(row, gpus),
                table.number(row, length),
                table.text(row, tenant),
            )
            for row in table
        )
    draft.rows = len(rows)
    origin = first_day(row[0] for row in rows)
    draft.origin = date_of(origin)
    draft.pairs = [
        (Job(JobId(f"philly-{i:06d}"), when - origin, demand(gpus), tenant), Truth(length))
        for i, (when, gpus, length, tenant) in enumerate(rows)
    ]
    return draft


def _entries(file: TraceFile) -> list[dict[str, Any]]:
    with reading(file.path), file.text() as stream:
        try:
            entries = json.load(stream)
        except RecursionError as error:
            raise TraceError(f"{file.path}: nested too deep for a log of jobs") from error
        except json.JSONDecodeError as error:
            raise TraceError.at(
                file.path,
                error.lineno,
                "",
                error.msg,
                "a JSON array of jobs",
                hint="the log is cut short or damaged; copy or download it again",
            ) from error
    for number, entry in enumerate(entries, 1):
        _check_shape(entry, f"{file.path}: entry {number}")
    return list(entries)


def _check_shape(entry: Any, where: str) -> None:
    """Raise TraceError where a value is not of the kind that the log's description says."""
    _expect(entry, dict, where)
    for number, attempt in enumerate(_items(entry, "attempts", where), 1):
        at = f"{where}, attempt {number}"
        _expect(attempt, dict, at)
        for node in _items(attempt, "detail", at):
            _expect(node, dict, f"{at}, field 'detail'")
            _items(node, "gpus", f"{at}, field 'detail'")


def _items(holder: Mapping[str, Any], field: str, where: str) -> list[Any]:
    items = holder.get(field) or []
    _expect(items, list, f"{where}, field {field!r}")
    return list(items)


def _expect(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise TraceError(
            f"{where}: found {str(value)[:40]!r}, expected {expected}",
            hint="fix or remove the entry; docs/reference/traces.md describes philly-json",
        )


def _join(entry: Mapping[str, Any], submitted: float, policy: str, path: str) -> Pair:
    runs = [_run(attempt, path) for attempt in entry["attempts"]]
    open_end = runs[-1][0] == runs[-1][0] and runs[-1][1] != runs[-1][1]
    state = "running" if open_end else STATES.get(str(entry.get("status")), "unknown")
    job = _job(entry, str(entry.get("jobid", "")), submitted, _gpus(entry["attempts"][0]))
    return job, Truth(_length(runs, policy), (), state, open_end)


def _length(runs: list[tuple[float, float]], policy: str) -> float:
    whole = [(start, end) for start, end in runs if start == start and end == end]
    if not whole:
        return nan
    if policy == "span":
        starts = [start for start, _ in runs if start == start]
        return max(end for _, end in whole) - min(starts)
    if policy == "last":
        return whole[-1][1] - whole[-1][0]
    return sum(end - start for start, end in whole)


def _split(entry: Mapping[str, Any], submitted: float, origin: float, path: str) -> Iterator[Pair]:
    attempts = entry["attempts"]
    for number, attempt in enumerate(attempts, 1):
        start, end = _run(attempt, path)
        last = number == len(attempts)
        name = str(entry.get("jobid", "")) + (f"-attempt{number}" if number > 1 else "")
        state = STATES.get(str(entry.get("status")), "unknown") if last else "failed"
        job = _job(entry, name, submitted - origin, _gpus(attempt))
        yield job, Truth(end - start, (), state)
        submitted = end if end == end else submitted


def _job(entry: Mapping[str, Any], name: str, submitted: float, gpus: int) -> Job:
    return Job(
        JobId(name),
        submitted,
        demand(gpus),
        tenant=str(entry.get("vc") or ""),
        user=str(entry.get("user") or ""),
    )


def _gpus(attempt: Mapping[str, Any]) -> int:
    return sum(len(node.get("gpus") or ()) for node in attempt.get("detail") or ())


def _run(attempt: Mapping[str, Any], path: str) -> tuple[float, float]:
    return _moment(attempt, "start_time", path), _moment(attempt, "end_time", path)


def _moment(entry: Mapping[str, Any], field: str, path: str) -> float:
    text = str(entry.get(field) or "").strip()
    if text.lower() in MISSING:
        return nan
    try:
        return seconds(text)
    except ValueError as error:
        raise TraceError(
            f"{path}: field {field!r} of job {entry.get('jobid', '')!r}: found {text!r}, "
            "expected a time such as 2017-10-07 01:12:09",
            hint="fix or remove the entry",
        ) from error


LOG = Format(
    "philly-json", "cluster_job_log of Microsoft Philly (Jeon et al., ATC'19)", is_log, load_log
)
DIGEST = Format(
    "philly-csv",
    "digested Philly CSV: timestamp,duration,num_gpus,... (Pollux, OSDI'21)",
    is_digest,
    load_digest,
)
