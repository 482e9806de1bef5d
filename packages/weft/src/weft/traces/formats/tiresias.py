"""CSV of the Tiresias, Muri and Chronus simulators: same columns, different units and extras."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import Job, JobId, Tier
from weft.core.model.trace import Truth
from weft.traces.draft import Format, TraceDraft, demand
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

SHARED = frozenset({"job_id", "num_gpu", "submit_time", "iterations", "model_name", "interval"})


def is_tiresias(sample: FileSample) -> bool:
    """The shared columns without the extras of the other two."""
    return _is_shared(sample) and not is_muri(sample) and not is_chronus(sample)


def is_muri(sample: FileSample) -> bool:
    """Stage times per iteration; such files count in milliseconds."""
    return _is_shared(sample) and "iteration_time" in sample.header


def is_chronus(sample: FileSample) -> bool:
    """Lists of deadlines and their worth."""
    return _is_shared(sample) and "expect_time_list" in sample.header


def load_tiresias(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Seconds; a job is its GPUs, its duration and a model name."""
    return _load(files, "tiresias-testbed", 1.0)


def load_muri(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Milliseconds; stage times come along, and a random bit that makes a job give way."""
    return _load(files, "muri", 1_000.0)


def load_chronus(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Read a Chronus trace: deadlines for SLO jobs, the lowest tier for best-effort jobs."""
    return _load(files, "", 1.0)


def _is_shared(sample: FileSample) -> bool:
    return sample.header >= SHARED - {"iterations", "interval"} and bool(
        sample.header & {"iterations", "interval"}
    )


def _load(files: Sequence[TraceFile], cluster: str, unit: float) -> TraceDraft:
    draft = TraceDraft(cluster=cluster)
    for file in files:
        table = TraceTable(file)
        reader = _Reader(table, unit)
        draft.pairs += ((reader.job(row), reader.truth(row)) for row in table)
        draft.rows += table.rows
    return draft


class _Reader:
    def __init__(self, table: TraceTable, unit: float) -> None:
        self.table, self.unit = table, unit
        self.id, self.gpus = table.index("job_id"), table.index("num_gpu")
        self.submit, self.length = table.index("submit_time"), table.index("duration")
        self.model, self.user = table.index("model_name"), table.maybe("user")
        self.batch, self.priority = table.maybe("batch_size"), table.maybe("priority")
        self.iterations = table.maybe("iterations")
        self.best_effort, self.expect = table.maybe("best_effort"), table.maybe("expect_time_list")
        self.stages = [
            (name, at)
            for i, name in enumerate(("iteration_s", *(f"stage{k}_s" for k in range(3))))
            if (at := table.maybe("iteration_time" if i == 0 else f"resource_time_{i - 1}")) >= 0
        ]

    def job(self, row: list[str]) -> Job:
        table = self.table
        submitted = table.number(row, self.submit) / self.unit
        priority = table.optional(row, self.priority)
        effort = table.count(row, self.best_effort) if self.best_effort >= 0 else 0
        return Job(
            JobId(row[self.id]),
            submitted,
            demand(table.count(row, self.gpus)),
            tenant=table.text(row, self.user),
            user=table.text(row, self.user),
            model=row[self.model],
            priority=-priority if priority else 0.0,  # theirs: 1 gives way to 0
            deadline=None if effort else self._deadline(row, submitted),
            tier=Tier.OPPORTUNISTIC if effort else Tier.GUARANTEED,
            hints=self._hints(row),
        )

    def truth(self, row: list[str]) -> Truth:
        return Truth(self.table.number(row, self.length) / self.unit)

    def _hints(self, row: list[str]) -> dict[str, float]:
        hints = {name: self.table.number(row, at) / self.unit for name, at in self.stages}
        if self.stages and self.iterations >= 0:
            hints["iterations"] = self.table.number(row, self.iterations)
        if self.batch >= 0:
            hints["batch"] = self.table.number(row, self.batch)
        return hints

    def _deadline(self, row: list[str], submitted: float) -> float | None:
        # A soft deadline is a list of ever later, ever less valuable times: the first counts.
        text = self.table.text(row, self.expect)
        if not text:
            return None
        try:
            return submitted + float(text.split("-")[0])
        except ValueError:
            raise self.table.wrong(row, self.expect, "seconds joined by '-'") from None


TIRESIAS = Format(
    "tiresias-csv", "job CSV of Tiresias (Gu et al., NSDI'19)", is_tiresias, load_tiresias
)
MURI = Format(
    "muri-csv",
    "job CSV of Muri (Zhao et al., SIGCOMM'22), times in milliseconds",
    is_muri,
    load_muri,
)
CHRONUS = Format(
    "chronus-csv",
    "job CSV with deadlines of Chronus (Gao et al., SoCC'21)",
    is_chronus,
    load_chronus,
)
