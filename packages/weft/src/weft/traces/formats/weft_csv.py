"""Our own CSV: one job per line; `id, submit_s, num_gpus, duration_s` are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Architecture, Pattern, Traffic, TrafficPhase
from weft.core.model.job import AT_ONCE, After, BatchRange, Demand, Job, JobId, Tier
from weft.core.model.trace import Detail, Truth
from weft.traces.draft import Format, Pair, TraceDraft, check_one_set, spread
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

PLAIN = ("id", "user", "tenant", "submit_s", "num_gpus", "gpu_type", "duration_s", "state")
GANG = ("attempts", "cpus", "mem_gb", "num_instances", "extra")
KNOWN = ("model", "priority", "tier", "deadline_s", "app", "after")
ELASTIC = ("min_gpus", "max_gpus", "batch_init", "batch_max", "batch_per_gpu")
NODES = "num_nodes"  # of gangs that ask for a number of nodes
TRAFFIC = (
    "iteration_s",
    "comm_share",
    "comm_gbit",
    "comm_pattern",
    "comm_phases",
    "comm_sensitive",
    "architecture",
)
COLUMNS = (*PLAIN, *GANG, *KNOWN, *ELASTIC, NODES, *TRAFFIC)
NEEDED = frozenset({"id", "submit_s", "num_gpus", "duration_s"})
LAYERED = "layer0_mb"  # the hint that every job with layers has in our files
NO_HINTS: Mapping[str, float] = {}
OPEN_STATES = frozenset({"running", "pending"})


def sniff(sample: FileSample) -> bool:
    """The unit suffixes are ours alone."""
    return len(NEEDED & sample.header) >= 3 and "submit_s" in sample.header


def load(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """Read one or more files of our CSV."""
    draft = TraceDraft()
    for file in files:
        table = TraceTable(file)
        reader = _Reader(table, options)
        draft.pairs += filter(None, map(reader.pair, table))
        draft.rows += table.rows
        draft.detail |= reader.detail
        if not options.subset:
            check_one_set(file.path, reader.sets)
        if reader.skipped:
            draft.dropped["subset"] += reader.skipped
    return draft


class _Reader:
    """Column positions, looked up once, and a short path for plain rows."""

    def __init__(self, table: TraceTable, options: Options) -> None:
        self.table, self.kinds, self.subset = table, options.kinds, options.subset
        self.id, self.submit = table.index("id"), table.index("submit_s")
        self.gpus, self.length = table.index("num_gpus"), table.index("duration_s")
        self.at = {name: table.maybe(name) for name in COLUMNS}
        self.user, self.tenant = self.at["user"], self.at["tenant"]
        self.state, self.extra = self.at["state"], self.at["extra"]
        rare = ("cpus", "mem_gb", "num_instances", "extra", *KNOWN, *ELASTIC, NODES, *TRAFFIC)
        self.rare = [self.at[name] for name in rare if self.at[name] >= 0]
        if self.kinds and self.at["gpu_type"] >= 0:
            self.rare.append(self.at["gpu_type"])
        self.set = table.maybe("set")
        self.sets: set[str] = set()
        self.seen: set[JobId] = set()
        self.skipped = 0
        self.detail = Detail.NOTHING

    def pair(self, row: list[str]) -> Pair | None:
        """The job of a row, or None when it is not in the subset asked for."""
        if self.set >= 0 and not self._choose(row):
            return None
        for column in self.rare:
            if row[column]:
                return self._rare_job(row), self._truth(row, self.table.text(row, self.extra))
        table = self.table
        job = Job(
            self._id(row),
            table.number(row, self.submit),
            spread(table.count(row, self.gpus), 1),
            row[self.tenant] if self.tenant >= 0 else "",
            row[self.user] if self.user >= 0 else "",
            hints=NO_HINTS,
        )
        return job, self._truth(row, "")

    def _choose(self, row: list[str]) -> bool:
        self.sets.add(row[self.set])
        if self.subset and row[self.set] != self.subset:
            self.skipped += 1
            return False
        return True

    def _id(self, row: list[str]) -> JobId:
        # Sets of one file may repeat ids.
        job_id = JobId(self._prefix(row) + row[self.id])
        if self.at["after"] >= 0:
            self.seen.add(job_id)
        return job_id

    def _prefix(self, row: list[str]) -> str:
        return f"{row[self.set]}/" if self.set >= 0 and not self.subset else ""

    def _truth(self, row: list[str], extra: str) -> Truth:
        state = row[self.state].lower() if self.state >= 0 else ""
        return Truth(
            self.table.number(row, self.length),
            self._failures(row, extra) if extra else (),
            state or "completed",
            "censored" in extra or state in OPEN_STATES,
        )

    def _rare_job(self, row: list[str]) -> Job:
        table, at = self.table, self.at
        extra = table.text(row, self.extra)
        opportunistic = table.text(row, at["tier"]).lower() == "opportunistic"
        return Job(
            self._id(row),
            table.number(row, self.submit),
            self._demand(row),
            tenant=table.text(row, self.tenant),
            user=table.text(row, self.user),
            model=table.text(row, at["model"]),
            batch=self._batch(row),
            priority=table.optional(row, at["priority"]) or 0.0,
            deadline=table.optional(row, at["deadline_s"]),
            tier=Tier.OPPORTUNISTIC if opportunistic else Tier.GUARANTEED,
            cpus=table.optional(row, at["cpus"]),
            mem_gb=table.optional(row, at["mem_gb"]),
            hints=self._hints(row, extra) if extra else NO_HINTS,
            app=table.text(row, at["app"]),
            after=self._after(row),
            traffic=read_traffic(table, row, at) if at[TRAFFIC[0]] >= 0 else None,
        )

    def _demand(self, row: list[str]) -> Demand:
        table, at = self.table, self.at
        kinds: tuple[str, ...] = ()
        if self.kinds and (text := table.text(row, at["gpu_type"])):
            kinds = tuple(dict.fromkeys(text.lower().split("|")))
        instances = int(table.optional(row, at["num_instances"]) or 1)
        base = spread(table.count(row, self.gpus), instances, kinds)
        if nodes := table.optional(row, at[NODES]):
            base = replace(base, nodes=int(nodes))
        low = table.optional(row, at["min_gpus"])
        high = table.optional(row, at["max_gpus"])
        if low is None and high is None:
            return base
        return replace(base, min=int(low or base.gpus), max=int(high or base.gpus))

    def _after(self, row: list[str]) -> After:
        """`ok:ID;any:ID;not_ok:ID`: jobs that came before and must have ended."""
        job_ids: dict[str, list[JobId]] = {"ok": [], "any": [], "not_ok": []}
        for part in filter(None, self.table.text(row, self.at["after"]).split(";")):
            how, colon, job = part.partition(":")
            name = JobId(self._prefix(row) + job)
            known = name in self.seen and job != row[self.id]
            if how not in job_ids or not colon or not known:
                raise self.table.wrong(
                    row, self.at["after"], "ok:ID, any:ID or not_ok:ID of jobs in lines before"
                )
            job_ids[how].append(name)
        return After(*map(tuple, job_ids.values())) if any(job_ids.values()) else AT_ONCE

    def _batch(self, row: list[str]) -> BatchRange | None:
        table, at = self.table, self.at
        init = table.optional(row, at["batch_init"])
        if init is None:
            return None
        most = table.optional(row, at["batch_max"]) or init
        return BatchRange(
            int(init), int(most), int(table.optional(row, at["batch_per_gpu"]) or most)
        )

    def _hints(self, row: list[str], extra: str) -> dict[str, float]:
        pairs = (part[5:].partition("=") for part in extra.split(";") if part.startswith("hint."))
        hints = {name: self._number(row, value) for name, _, value in pairs}
        if LAYERED in hints:
            self.detail |= Detail.LAYERS
        return hints

    def _failures(self, row: list[str], extra: str) -> tuple[float, ...]:
        texts = [part[9:] for part in extra.split(";") if part.startswith("failures=")]
        return tuple(self._number(row, point) for text in texts for point in text.split("/"))

    def _number(self, row: list[str], text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise self.table.wrong(
                row, self.extra, "numbers after 'hint.' and 'failures='"
            ) from None


FORMAT = Format(
    "weft-csv", "Weft's own CSV, one job per line; every trace can be written as one", sniff, load
)


# ---- The columns of our CSV that say what a job's workers send in an iteration


def read_traffic(table: TraceTable, row: list[str], at: Mapping[str, int]) -> Traffic | None:
    """Return the traffic of a row's job; None without `iteration_s`."""
    iteration_s = table.optional(row, at["iteration_s"])
    if iteration_s is None:
        return None
    try:
        return Traffic(
            iteration_s,
            table.optional(row, at["comm_share"]) or 0.0,
            table.optional(row, at["comm_gbit"]) or 0.0,
            Pattern(table.text(row, at["comm_pattern"]) or "ring"),
            _read_phases(table, row, at["comm_phases"]),
            table.text(row, at["comm_sensitive"]).lower() != "false",
            Architecture(table.text(row, at["architecture"]) or "all-reduce"),
        )
    except (InvalidConfig, ValueError) as error:
        expected = f"an iteration that can be: {error}"
        raise table.wrong(row, at["iteration_s"], expected) from None


def write_traffic(sent: Traffic | None) -> dict[str, object]:
    """The cells of a job."""
    if sent is None:
        return dict.fromkeys(TRAFFIC, "")
    phases = (f"{p.start_s!r}/{p.seconds!r}/{p.gbps!r}" for p in sent.phases)
    return {
        "iteration_s": repr(sent.iteration_s),
        "comm_share": repr(sent.share),
        "comm_gbit": repr(sent.gbit),
        "comm_pattern": sent.pattern.value,
        "comm_phases": ";".join(phases),
        "comm_sensitive": "" if sent.sensitive else "false",
        "architecture": sent.architecture.value,
    }


def _read_phases(table: TraceTable, row: list[str], column: int) -> tuple[TrafficPhase, ...]:
    parts = filter(None, table.text(row, column).split(";"))
    try:
        return tuple(TrafficPhase(*map(float, part.split("/"))) for part in parts)
    except (TypeError, ValueError):
        raise table.wrong(row, column, "START_S/SECONDS/GBPS joined by ';'") from None
