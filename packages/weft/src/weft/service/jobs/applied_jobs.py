"""Jobs that people apply to the engine's cluster: submitted, shown there, cancelled with them.

The job's id is made of the object's own, so that however often one object is looked at, and
whatever was restarted meanwhile, it is one job. What is deleted stays until its job has left.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from weft.core.errors import InvalidConfig, WeftError
from weft.core.job_objects import JobObject, JobObjects
from weft.core.model.job import JobId
from weft.plural import say_gpus
from weft.runtime.loop.background import Repeated
from weft.service.access.tokens import Caller
from weft.service.context import Context
from weft.service.http.replies import HttpProblem, describe_invalid
from weft.service.jobs.awaited_jobs import AwaitedJobs
from weft.service.jobs.job_view import JobView
from weft.service.requests.job_file import JobFile
from weft.service.responses.answers import JobAnswer, Problem
from weft.service.routes.jobs.jobs import read_jobs, submit_checked

AGAIN_S = 30.0  # after a refusal that something else than the spec may end
PART = 25  # at a time: some 1 ms
REASON_S = 15.0  # between two writes of a reason alone: a forecast changes all the time
FOREIGN = {
    "id": "its id is made of the object's own",
    "tenant": "its tenant is that of the namespace",
    "sweep": "an object is one job; apply one for each, or use `weft submit`",
}
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


@dataclass
class AppliedJobs(Repeated):
    """Follows the objects of one cluster."""

    every_s = 1.0
    trouble = "jobs that were applied to the cluster are not looked at"
    service: Context
    objects: JobObjects
    _view: JobView = field(init=False)
    _written: dict[str, float] = field(default_factory=dict)
    _refused: dict[str, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, service: Context) -> AppliedJobs | None:
        """Return the engine's applied jobs, read from now on; None where it has none."""
        objects = service.driver.engine.job_objects
        if objects is None:
            return None
        made = cls(service, objects)
        made.open()
        return made

    async def poll(self) -> None:
        """Every object once; one that cannot be written is tried again, the others go on."""
        there = self.objects.all()
        self._view = JobView(self.service.driver)
        errors = []
        for number, asked in enumerate(there):
            if number % PART == 0:
                await asyncio.sleep(0.0)
            try:
                await self._settle(asked)
            except WeftError as error:
                errors.append(error)
        uids = {asked.uid for asked in there}
        for memory in (self._written, self._refused):
            for uid in memory.keys() - uids:
                memory.pop(uid, None)
        if errors:
            raise errors[0]

    async def _settle(self, asked: JobObject) -> None:
        job = job_id(asked)
        known = job in self.service.driver.ledger.jobs.live
        if asked.deleted:
            await self._leave(asked, job)
        elif known:
            await self._show(asked, job)
        elif (asked.status or {}).get("phase") not in ENDED:
            await self._begin(asked, job)

    async def _leave(self, asked: JobObject, job: JobId) -> None:
        jobs = self.service.driver.ledger.jobs
        if not asked.claimed:
            return
        if job in jobs.active:
            await self.service.driver.cancel(job)
        elif job not in jobs.leaving:  # its processes are gone
            await self.objects.release(asked)

    async def _begin(self, asked: JobObject, job: JobId) -> None:
        """Submit what is new; what has ended before we looked is shown as it ended."""
        if job in self.service.driver.ledger.jobs:
            await self._show(asked, job)
            return
        now = time.time()
        if (asked.status or {}).get("job"):
            await self._write(asked, status_of_lost(asked, now))
            return
        if self._wait_with(asked):
            return
        try:
            await self._submit(asked, job)
        except _Invalid as wrong:
            self._refused[asked.uid] = (asked.generation, time.monotonic())
            await self._write(asked, status_of_refusal(asked, wrong.problem, now))

    def _wait_with(self, asked: JobObject) -> bool:
        generation, at = self._refused.get(asked.uid, (0, 0.0))
        return generation == asked.generation and time.monotonic() - at < AGAIN_S

    async def _submit(self, asked: JobObject, job: JobId) -> None:
        who = Caller("user", asked.tenant)
        body = read_spec(asked)
        try:
            after = await AwaitedJobs(self.service.names, who).resolve_after(body)
            (read,) = read_jobs(body.model_copy(update={"id": job}), self.service, who, after)
            if not asked.claimed:
                self.service.live.check(read)
                await self.objects.claim(asked)
            await submit_checked([read], self.service, who)
        except HttpProblem as error:
            raise _Invalid(error.what, error.hint, error.field) from error
        except InvalidConfig as error:
            raise _Invalid(error.what, error.hint) from error

    async def _show(self, asked: JobObject, job: JobId) -> None:
        answer = self._view.describe_job(self.service.driver.job(job))
        await self._write(asked, status_of_job(asked, answer, time.time()))

    async def _write(self, asked: JobObject, status: Status) -> None:
        before = dict(asked.status or {})
        if status == before:
            return
        calm = {**status, "reason": ""} == {**before, "reason": ""}
        if calm and time.monotonic() - self._written.get(asked.uid, 0.0) < REASON_S:
            return
        for reason, text in news_of(asked.status, status):
            await self.objects.post_event(asked, reason, text, warning=reason in WARNINGS)
        await self.objects.write(asked, status)
        self._written[asked.uid] = time.monotonic()


class _Invalid(WeftError):  # noqa: N818 - what is said of it
    def __init__(self, what: str, hint: str = "", field: str = "") -> None:
        super().__init__(what, hint=hint)
        self.problem = Problem(error=what, hint=hint, field=field)


def job_id(asked: JobObject) -> JobId:
    """The id of an object's job, equal at every request."""
    stem = re.sub(r"[^a-z0-9.-]+", "-", asked.name)[:44].strip("-.")
    return JobId(f"{asked.tenant}:{stem}-{asked.uid.replace('-', '')[:16]}")


def read_spec(asked: JobObject) -> JobFile:
    """The job file that an object holds."""
    spec: Mapping[str, object] = asked.spec
    if named := next((name for name in FOREIGN if name in spec), ""):
        raise _Invalid(f"{named}: {FOREIGN[named]}", "leave it out", named)
    try:
        return JobFile.model_validate({"name": asked.name, "workdir": asked.workdir, **spec})
    except ValidationError as error:
        errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        wrong = describe_invalid(errors, JobFile)
        raise _Invalid(wrong.error, wrong.hint, wrong.field) from error


# ---- The status of a job that was applied to the cluster: pure


def status_of_job(asked: JobObject, answer: JobAnswer, now: float) -> Status:
    """The status of a job that was submitted."""
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
    """The status of a spec that was refused: the field, what is wrong, and what helps."""
    text = f"{wrong.error}; {wrong.hint}" if wrong.hint else wrong.error
    refused = (ACCEPTED, False, "InvalidSpec" if wrong.field else "HttpProblem", text[:LONGEST])
    return {
        "phase": REJECTED,
        "reason": text[:LONGEST],
        "observedGeneration": asked.generation,
        "conditions": conditions(asked.status or {}, now, refused),
    }


def status_of_lost(asked: JobObject, now: float) -> Status:
    """The status of a job that was submitted to a service whose log is not there any more."""
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
    """Changes worth an event: another phase, another attempt, a spec that is not in force."""
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
