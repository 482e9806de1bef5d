"""The last month: how the cluster was used, who waited, and what happened to its machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from pydantic import Field

from weft.core.errors import UnknownName
from weft.runtime.records.cluster_history import Floats, Key, Mark, Measure, PastWindows
from weft.runtime.records.job_records import ALL
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Service
from weft.service.http.replies import Json
from weft.service.responses.history import (
    ClusterHistoryAnswer,
    HistoryMark,
    KindHistory,
    NodeHistoryAnswer,
    QueueHistory,
    UseHistory,
)

router = APIRouter(prefix=PREFIX, tags=["timeline"], responses=PROBLEMS)

HOUR_S = 3600.0
MOST_TENANTS = 24
Time = Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False)]


@router.get("/history", response_model=ClusterHistoryAnswer)
async def history(
    service: Service,
    who: Anyone,
    since: Annotated[Time | None, Query(description="From here; an hour ago if left out.")] = None,
    until: Annotated[Time, Query(description="To here.")] = 1e12,
) -> Json:
    """The cluster over time: GPUs by tenant and kind, the queue, waits, speed, memory and power.

    In at most 400 windows: of 10 s for the last hour, up to 2 h for the last month. A stretch that
    begins earlier has longer ones. GPU-hours are those of the accounts.
    """
    now, past = service.driver.now, service.driver.ledger.history.copy()

    def read() -> ClusterHistoryAnswer:
        past.advance(now)
        first = now - HOUR_S if since is None else since
        stretch = past.windows_between(first, until)
        sums = _by_key(stretch, who)
        total = sums.get((ALL, ""), np.zeros_like(stretch.sums[:, 0]))
        marks = past.marks_between(first, until)
        return ClusterHistoryAnswer(
            now=now,
            begun=now if past.begun is None else past.begun,
            window_s=stretch.width_s,
            at=[*stretch.begins],
            seconds=[*stretch.seconds],
            kinds=_kinds(stretch),
            use=[_use(key, sums[key], stretch.seconds) for key in _used(sums)],
            queues=[_queue(key, sums[key], stretch.seconds) for key in _queued(sums)],
            decisions=total[:, Measure.DECIDED].tolist(),
            moves=total[:, Measure.MOVED].tolist(),
            marks=[_mark(mark) for mark in marks if who.admin or mark.what != "rules"],
        )

    return Json(await service.read(read))


@router.get("/nodes/{node_id}/history", response_model=NodeHistoryAnswer)
async def node_history(node_id: str, service: Service, who: Anyone) -> Json:  # noqa: ARG001
    """Return the past of a machine: when it was drained, by whom and why, lost, set aside, back."""
    known: list[str] = [node.id for node, _ in service.driver.nodes()]
    if node_id not in known:
        raise UnknownName.among("node", node_id[:64], known, "weft nodes")
    past = service.driver.ledger.history
    of_node = [_mark(mark) for mark in past.marks if mark.node == node_id]
    out = [_mark(mark) for mark in past.out.values() if mark.node == node_id]
    return Json(NodeHistoryAnswer(marks=of_node, out=out))


def _by_key(stretch: PastWindows, who: Caller) -> dict[Key, Floats]:
    """Sums that a caller may see, the cluster's own among them; of many tenants the largest."""
    wide: Counter[str] = Counter()
    whole = stretch.sums[:, :, [Measure.USED, Measure.WANTED]].sum(axis=(0, 2))
    for (tenant, _), size in zip(stretch.keys, whole.tolist(), strict=True):
        wide[tenant] += size
    large = {tenant for tenant, _ in wide.most_common(MOST_TENANTS)}
    sums: dict[Key, Floats] = {}
    for row, (tenant, kind) in enumerate(stretch.keys):
        if tenant == ALL or who.everywhere or tenant == who.tenant:
            key = (tenant if tenant in large or not who.everywhere else ALL, kind)
            mine = stretch.sums[:, row]
            sums[key] = sums[key] + mine if key in sums else mine
    return sums


def _used(sums: Mapping[Key, Floats]) -> list[Key]:
    return [key for key in sorted(sums) if sums[key][:, Measure.USED].any()]


def _queued(sums: Mapping[Key, Floats]) -> list[Key]:
    columns = [Measure.WAITING, Measure.STARTED, Measure.FAILED]
    return [key for key in sorted(sums) if not key[1] and sums[key][:, columns].any()]


def _kinds(stretch: PastWindows) -> list[KindHistory]:
    kinds = sorted({kind for tenant, kind in stretch.keys if tenant == ALL and kind})
    answers = []
    for kind in kinds:
        rows = [row for row, key in enumerate(stretch.keys) if key[1] == kind]
        sums = stretch.sums[:, rows].sum(axis=1)
        gpus, out, used = (
            _means(sums, column, stretch.seconds)
            for column in (Measure.ALL, Measure.OUT, Measure.USED)
        )
        if any(gpus):
            answers.append(KindHistory(kind=kind, gpus=gpus, out=out, used=used))
    return answers


def _use(key: Key, sums: Floats, seconds: Sequence[float]) -> UseHistory:
    def means(column: Measure) -> list[float]:
        return _means(sums, column, seconds) if sums[:, column].any() else []

    busy, measured = sums[:, Measure.BUSY].tolist(), sums[:, Measure.MEASURED].tolist()
    parts = [round(b / m, 4) if m else None for b, m in zip(busy, measured, strict=True)]
    return UseHistory(
        tenant=key[0],
        kind=key[1],
        used=_means(sums, Measure.USED, seconds),
        running=_means(sums, Measure.RUNNING, seconds),
        steps=means(Measure.STEPS),
        goodput=means(Measure.GOODPUT),
        busy=parts if any(measured) else [],
        memory_gb=means(Measure.MEMORY),
        power_w=means(Measure.POWER),
    )


def _queue(key: Key, sums: Floats, seconds: Sequence[float]) -> QueueHistory:
    return QueueHistory(
        tenant=key[0],
        waiting=_means(sums, Measure.WAITING, seconds),
        wanted_gpus=_means(sums, Measure.WANTED, seconds),
        started=sums[:, Measure.STARTED].tolist(),
        waited_s=np.round(sums[:, Measure.WAITED], 3).tolist(),
        failed=sums[:, Measure.FAILED].tolist(),
    )


def _means(sums: Floats, column: Measure, seconds: Sequence[float]) -> list[float]:
    means: list[float] = np.round(sums[:, column] / np.asarray(seconds), 6).tolist()
    return means


def _mark(mark: Mark) -> HistoryMark:
    return HistoryMark(
        at=mark.at, what=mark.what, about=mark.about, node=mark.node, by=mark.by, why=mark.why
    )
