"""The past: which jobs held which devices when, and what was decided."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from weft.core.model.job import JobId
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service, find_job
from weft.service.http.replies import Json
from weft.service.responses import watch as responses
from weft.service.responses.watch import GpusOnNode
from weft.service.streams.timeline import Decision, Span, Timeline, longest

router = APIRouter(prefix=PREFIX, tags=["timeline"], responses=PROBLEMS)

MOST = 20_000
WITHIN_S = 1.5
Time = Annotated[float, Field(ge=0.0, le=1e12, allow_inf_nan=False)]


@router.get("/timeline", response_model=responses.TimelineAnswer)
async def timeline(
    service: Service,
    who: Anyone,
    since: Annotated[Time, Query(description="From here.")] = 0.0,
    until: Annotated[Time, Query(description="To here.")] = 1e12,
    after: Annotated[int, Query(ge=0, le=1 << 60, description="The `seq` of an answer.")] = 0,
    job: Annotated[str, Query(max_length=200, description="Of one job alone.")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 8_000,
) -> Json:
    """Jobs on devices in a time window, from the log; with `after`, only changes."""
    only = str(find_job(service, who, job).record.job.id) if job else ""
    line = await service.timeline.ready(WITHIN_S)
    spans = await service.read(partial(line.between, since, until, after, only))
    chosen = longest(spans, limit, service.driver.now)
    return Json(
        responses.TimelineAnswer(
            now=service.driver.now,
            begun=line.begun,
            part_read=service.timeline.part_read,
            seq=line.seq,
            spans=[_span(line, who, span) for span in chosen],
            left_out=len(spans) - len(chosen),
        )
    )


@router.get("/decisions", response_model=responses.DecisionList)
async def decisions(
    service: Service, who: Anyone, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> Json:
    """The latest decisions that changed something, with what each changed and why."""
    line = await service.timeline.ready(WITHIN_S)
    last = [*line.decisions][: -limit - 1 : -1]
    answers = [_decision(service, line, who, decision) for decision in last]
    return Json(responses.DecisionList(decisions=answers, part_read=service.timeline.part_read))


def _mine(timeline: Timeline, who: Caller, job: JobId) -> bool:
    known = timeline.names.get(job)
    return known is not None and (who.everywhere or known.tenant == who.tenant)


def _span(timeline: Timeline, who: Caller, span: Span) -> responses.HeldSpan:
    mine = _mine(timeline, who, span.job)
    return responses.HeldSpan(
        job=span.job if mine else "",
        name=timeline.names[span.job].name if mine else "",
        tenant=timeline.names[span.job].tenant if mine else "",
        attempt=span.attempt if mine else 0,
        on=[GpusOnNode(node=node, gpus=list(gpus)) for node, gpus in span.on],
        share=span.share,
        start=span.start,
        end=span.end,
        how=span.how if mine else "",
        lost_gpu_s=span.lost_gpu_s if mine else None,
    )


def _decision(
    service: Context, timeline: Timeline, who: Caller, decision: Decision
) -> responses.DecisionAnswer:
    known = service.driver.decisions.recent.get(decision.number)
    moves = [
        responses.MoveAnswer(
            job=move.job,
            name=timeline.names[move.job].name,
            before_gpus=move.before,
            after_gpus=move.after,
            adjusted=move.kept,
            why=move.why,
        )
        for move in decision.moves
        if _mine(timeline, who, move.job)
    ]
    return responses.DecisionAnswer(
        number=decision.number,
        at=decision.at,
        moves=moves,
        more_moves=decision.more + len(decision.moves) - len(moves),
        rejected=decision.rejected,
        reasons=decision.reasons,
        by=decision.by,
        took_s=None if known is None else known.took_s,
        numbers={} if known is None else dict(known.numbers),
    )
