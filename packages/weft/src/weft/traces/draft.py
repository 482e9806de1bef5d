"""Jobs with their truth as a format returns them, before any filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from math import ceil

from weft.core.errors import TraceError
from weft.core.model.job import Demand, Job
from weft.core.model.trace import Detail, Trace, Truth
from weft.frozen import frozen
from weft.traces.options import DrawRequest, Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

Pair = tuple[Job, Truth]


@dataclass(slots=True)
class TraceDraft:
    """Jobs as read. A length or time that the file lacks is `nan`; a job without GPU has 0.

    `published` is how many rows the complete public file has, 0 when that is not known; `detail` is
    what its jobs say about how they train.
    """

    pairs: list[Pair] = field(default_factory=list)
    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    origin: datetime | None = None
    cluster: str = ""
    published: int = 0
    detail: Detail = Detail.NOTHING


@frozen
class Format:
    """A file format: how to recognise one and how to read it."""

    name: str
    about: str
    sniff: Callable[[FileSample], bool]
    load: Callable[[Sequence[TraceFile], Options], TraceDraft]


@frozen
class Workload:
    """A workload that is drawn, not read; `cluster` is what it runs on by default."""

    name: str
    about: str
    cluster: str
    generate: Callable[[DrawRequest], Trace]


TracePart = Format | Workload  # what the entry points of `weft.traces` name


def recorded(table: TraceTable, row: list[str]) -> Truth:
    """Return the truth of a job that ran for its `duration`."""
    return Truth(table.number(row, table.index("duration")))


@lru_cache(maxsize=65_536)
def demand(each: float, instances: int = 1, kinds: tuple[str, ...] = ()) -> Demand:
    """A gang of `instances` that want `each` GPUs; a part of a GPU becomes a share."""
    if 0 < each < 1:
        return Demand(gpus=instances, kinds=kinds, share=round(each, 6))
    return Demand(gpus=ceil(round(each * instances, 6)), kinds=kinds)


def spread(total: float, instances: int, kinds: tuple[str, ...] = ()) -> Demand:
    """Return the demand of a gang by its total GPU count."""
    if 0 < total < instances:
        return demand(total / instances, instances, kinds)
    return demand(total, 1, kinds)


def check_one_set(path: str, sets: set[str]) -> None:
    """Refuse a file of several workloads where none of them was chosen."""
    if len(sets) > 1:
        names = sorted(sets)
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise TraceError(
            f"{path}: holds {len(sets)} workloads: {shown}",
            hint=f"choose one, for example -o subset={names[0]}; all of them in sequence would "
            f"be a different workload",
        )
