"""The status of a job that was applied to the cluster: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from weft.core.job_objects import JobObject
from weft.plural import say_gpus
from weft.service.responses.answers import JobAnswer, Problem

Status = dict[str, Any]
REJECTED, LOST = "Rejected", "Lost"  # phases besides a job's states
ENDED = ("Succeeded", "Failed", "Cancelled", LOST)
WARNINGS = ("Failed", REJECTED, LOST, "SpecChanged")
ACCEPTED = "Accepted"
CHANGED = (
    "the spec was changed after the job was submitted, and the job runs on unchanged; "
    "delete the WeftJob and apply it again"
)
LONGEST = 1024


def status_of_job(asked: JobObject, answer: JobAnswer, now: float) -> Status:
    """What is shown of a job that was submitted."""
    before = asked.status or {}
    phase, held = answer.state.capitalize(), answer.allocation or ()
    seen = int(before.get("observedGeneration", asked.generation))
    changed = before.get("job") == answer.id and asked.generation != seen
    status = {
        "phase": phase,
        "reason": answer.reason[:LONGEST],
        "job": answer.id,
        "tenant": answer.tenant,
        "nodes": [part.node for part in held],
        "gpus": sum(len(part.gpus) for part in held),
        "asked": answer.gpus.asked,
        "attempts": answer.attempt,
        "submittedAt": write_time(answer.submitted),
        "startedAt": write_time(answer.started),
        "endedAt": write_time(answer.ended),
        "observedGeneration": seen,
        "conditions": conditions(
            before,
            now,
            (ACCEPTED, not changed, "SpecChanged" if changed else "Submitted", CHANGED * changed),
            ("Running", phase == "Running", phase, ""),
            ("Complete", phase == "Succeeded", phase, ""),
            ("Failed", phase in ("Failed", "Cancelled"), phase, answer.reason[:LONGEST]),
        ),
    }
    return {name: value for name, value in status.items() if value not in (None, "")}


def status_of_refusal(asked: JobObject, wrong: Problem, now: float) -> Status:
    """What is shown of a spec that was refused: the field, what is wrong, and what helps."""
    text = f"{wrong.error}; {wrong.hint}" if wrong.hint else wrong.error
    refused = (ACCEPTED, False, "InvalidSpec" if wrong.field else "Refused", text[:LONGEST])
    return {
        "phase": REJECTED,
        "reason": text[:LONGEST],
        "observedGeneration": asked.generation,
        "conditions": conditions(asked.status or {}, now, refused),
    }


def status_of_lost(asked: JobObject, now: float) -> Status:
    """What is shown of a job that was submitted to a service whose log is not there any more."""
    before = asked.status or {}
    text = f"the service does not know job {before.get('job')}; delete the WeftJob and apply it"
    lost = ("Failed", True, LOST, text)
    return {**before, "phase": LOST, "reason": text, "conditions": conditions(before, now, lost)}


def conditions(
    before: Mapping[str, Any], now: float, *facts: tuple[str, bool, str, str]
) -> list[dict[str, str]]:
    """Types with whether they hold, a word and a text; times are when that last changed."""
    known = {each["type"]: each for each in before.get("conditions") or ()}
    return [
        {
            "type": kind,
            "status": str(holds),
            "reason": word,
            **({"message": text} if text else {}),
            "lastTransitionTime": known[kind]["lastTransitionTime"]
            if kind in known and known[kind]["status"] == str(holds)
            else str(write_time(now)),
        }
        for kind, holds, word, text in facts
    ]


def news_of(before: Mapping[str, Any] | None, status: Status) -> Sequence[tuple[str, str]]:
    """What is worth an event: another phase, another attempt, a spec that is not in force."""
    old = before or {}
    news = []
    if "job" in status and "job" not in old:
        news.append(("Submitted", f"as job {status['job']} of tenant {status['tenant']}"))
    phase = status["phase"]
    if (phase, status.get("attempts")) != (old.get("phase"), old.get("attempts")):
        news.append((phase, _describe(status)))
    elif phase == REJECTED and status["reason"] != old.get("reason"):
        news.append((phase, str(status["reason"])))
    if _is_changed(status) and not _is_changed(old):
        news.append(("SpecChanged", CHANGED))
    return news


def _is_changed(status: Mapping[str, Any]) -> bool:
    return any(each["reason"] == "SpecChanged" for each in status.get("conditions") or ())


def _describe(status: Status) -> str:
    parts = [f"attempt {status['attempts']}"] if status.get("attempts") else []
    if status.get("nodes"):
        parts.append(f"{say_gpus(status['gpus'])} on {', '.join(status['nodes'])}")
    return "; ".join([*parts, *filter(None, [status.get("reason", "")])]) or "the job waits"


def write_time(at: float | None) -> str | None:
    """A time as Kubernetes writes it."""
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
