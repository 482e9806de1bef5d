"""Shockwave: tab-separated traces of 12 columns, and profiles of jobs that change their batch size.

With a table of measured throughputs (option `tables`) the jobs of a trace train in regimes; the
growth of batches by gradient noise scale is read from `gns_regimes.json` beside that table.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from weft.core.errors import TraceError
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Detail, Truth
from weft.core.paths import expand
from weft.formulas.training.regimes import Regimes, regimes_of
from weft.frozen import frozen
from weft.plural import say_gpus
from weft.traces.draft import Format, Pair, TraceDraft, demand
from weft.traces.draw.batch_schedules import SAMPLES, Schedule, accordion, noise_scale
from weft.traces.formats.gavel import BASE, batch_of, count_columns, read_gang, read_job
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile, reading
from weft.traces.table import TraceTable

NAMES = (*BASE, "mode", "priority_weight", "slo", "duration", "arrival")
MODES = {"static": 0.0, "accordion": 1.0, "gns": 2.0}
# GPUs of the published experiments by number of jobs.
GPUS = {120: 32, 220: 64, 460: 128, 900: 256}
GROWTH = "gns_regimes.json"
KIND = "v100"  # the tables' name for the GPU they were measured on


@frozen
class Tables:
    """Steps per second by job type and GPUs, and how batches grow by model, batch and GPUs."""

    path: str
    steps_per_s: Mapping[tuple[str, int], float]
    growth: Mapping[tuple[str, int, int], tuple[tuple[int, int], ...]]

    def epoch_s(self, model: str, batch: int, gpus: int) -> float:
        """Seconds of one epoch."""
        rate = self.steps_per_s.get((f"{model} (batch size {batch})", gpus), 0.0)
        if rate <= 0.0:
            raise TraceError(
                f"{self.path}: has no speed of {model} at batch size {batch} on {say_gpus(gpus)}",
                hint="use the table that belongs to the trace",
            )
        return SAMPLES[model] / batch / rate

    def schedule(self, mode: str, model: str, batch: int, gpus: int, epochs: int) -> Schedule:
        """The batch sizes that a job passes through."""
        if mode == "accordion":
            return accordion(model, batch, epochs)
        if mode == "gns":
            return noise_scale(self.growth.get((model, batch, gpus), ()), batch, epochs)
        return ((batch, epochs),)


def is_trace(sample: FileSample) -> bool:
    """Twelve columns."""
    return count_columns(sample) == len(NAMES)


def is_profile(sample: FileSample) -> bool:
    """A JSON object of jobs with runs of batch sizes."""
    return sample.text.lstrip().startswith("{") and '"batch_size_runs"' in sample.text


def load_trace(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """Length is the trace's own nominal duration, or that of all epochs where there are tables."""
    tables = read_tables(expand(options.tables)) if options.tables else None
    draft = TraceDraft(detail=Detail.NOTHING if tables is None else Detail.REGIMES)
    for file in files:
        table = TraceTable(file, names=NAMES, delimiter="\t")
        draft.pairs += (_read_row(table, row, tables) for row in table)
        draft.rows += table.rows
    draft.cluster = _cluster(draft.rows)
    return draft


def load_profile(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Epochs, batch sizes and seconds of an epoch, job by job."""
    draft = TraceDraft(detail=Detail.REGIMES)
    for file in files:
        for entry in _read_json(file):
            draft.pairs.append(_read_entry(file.path, entry))
            draft.rows += 1
    draft.cluster = _cluster(draft.rows)
    return draft


def read_tables(path: Path) -> Tables:
    """Throughputs as in Gavel's tables, and the growth of batches from the file beside them."""
    beside = path.with_name(GROWTH)
    try:
        speeds, growth = json.loads(path.read_text()), json.loads(beside.read_text())
        rates = {
            (str(ast.literal_eval(key)[0]), int(ast.literal_eval(key)[1])): float(cells["null"])
            for key, cells in speeds[KIND].items()
        }
        grows = {
            (grown["model"], int(grown["initial_batch_size"]), int(grown["scale_factor"])): tuple(
                (int(step["from_epoch"]), int(step["batch_size"])) for step in grown["regimes"]
            )
            for grown in growth
        }
    except OSError as error:
        raise TraceError(
            f"cannot read {error.filename}: {error.strerror}",
            hint=f"tables names a file of throughputs; {GROWTH} lies beside it",
        ) from error
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise TraceError(
            f"{path} or {beside}: not tables of Shockwave: {error}",
            hint="take the files of the public repository as they are",
        ) from error
    return Tables(str(path), rates, grows)


def _cluster(jobs: int) -> str:
    return f"{GPUS.get(jobs, 32) // 4}x4:v100"


def _read_row(table: TraceTable, row: list[str], tables: Tables | None) -> Pair:
    column = table.index("mode")
    mode = row[column]
    if mode not in MODES:
        raise table.wrong(row, column, f"one of {', '.join(MODES)}")
    length = table.number(row, table.index("duration"))
    if tables is None:
        return read_job(table, row, length, {"mode": MODES[mode]}), Truth(length)
    model, gpus = row[0].split(" (")[0], read_gang(table, row)
    batch = int(batch_of(row[0]).get("batch", 0.0))
    if model not in SAMPLES or batch < 1:
        raise table.wrong(row, 0, f"a job type of {', '.join(SAMPLES)} with its batch size")
    steps = table.number(row, table.index("total_steps"))
    epochs = ceil(steps / ceil(SAMPLES[model] / batch))
    schedule = tables.schedule(mode, model, batch, gpus, epochs)
    sizes = sorted({size for size, _ in schedule})
    declared = Regimes(
        epochs, {size: tables.epoch_s(model, size, gpus) for size in sizes}, SAMPLES[model]
    )
    length = declared.seconds(schedule)
    hints = {"mode": MODES[mode], **declared.hints()}
    return read_job(table, row, length, hints), Truth(length, schedule=schedule)


def _read_json(file: TraceFile) -> list[Mapping[str, Any]]:
    with reading(file.path), file.text() as stream:
        try:
            jobs = json.load(stream)["jobs"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise TraceError(
                f"{file.path}: not a profile of jobs: {error}", hint="is the file complete?"
            ) from error
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise TraceError(f"{file.path}: jobs is not a list of jobs", hint="is the file complete?")
    return jobs


def _read_entry(path: str, entry: Mapping[str, Any]) -> Pair:
    try:
        schedule = tuple((int(size), int(n)) for size, n in entry["batch_size_runs"] if n > 0)
        seconds = {int(s): float(t) for s, t in entry["epoch_seconds_by_batch_size"].items()}
        declared = Regimes(int(entry["num_epochs"]), seconds, float(entry["samples_per_epoch"]))
        batch = int(entry["initial_batch_size"])
        job = Job(
            JobId(f"job-{int(entry['job'])}"),
            float(entry["arrival_s"]),
            demand(int(entry["scale_factor"])),
            model=f"{entry['model']} (batch size {batch})",
            priority=1.0,
            hints={"batch": float(batch), "mode": MODES[entry["mode"]], **declared.hints()},
        )
        regimes_of(job)  # refuses what no job can declare
        return job, Truth(declared.seconds(schedule), schedule=schedule)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise TraceError(
            f"{path}: job {entry.get('job', '?')!r}: {error!r} is missing or cannot be read",
            hint="a profile has arrival_s, model, mode, scale_factor, num_epochs, "
            "batch_size_runs and epoch_seconds_by_batch_size of every job",
        ) from error


TRACE = Format(
    "shockwave-trace",
    "tab-separated traces of Shockwave (Zheng et al., NSDI'23)",
    is_trace,
    load_trace,
)
PROFILE = Format(
    "shockwave-profile",
    "profiles of jobs that change batch size, for Shockwave (Zheng et al., NSDI'23)",
    is_profile,
    load_profile,
)
