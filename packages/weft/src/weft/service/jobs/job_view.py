"""Jobs, nodes and allocations as the API answers them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, cast

from weft.app.serve.live import Live
from weft.core.codec.plain_values import encode
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, name_of, priority_word
from weft.core.plan.reasons import Reason, device_word
from weft.core.protocols import DeviceHealth
from weft.runtime.deciding.waiting import waits_of, why_small, why_waits
from weft.runtime.loop.driver import Driver
from weft.runtime.records.idle_jobs import describe_idle
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.metrics import JobMetrics
from weft.runtime.records.status import JobStatus
from weft.service.access.redaction import mask, mask_all, secrets_of
from weft.service.jobs.memory_words import words_for_wait, words_if_unguarded
from weft.service.responses.answers import JobAnswer, NodeAnswer, Notice, Part
from weft.service.responses.job_row import (
    GpuHealth,
    GpuRange,
    MetricValue,
    NodeWord,
    StateWord,
    measurements_of,
)
from weft.stack.windows import ASIDE, ReservedWindow, read_window

SILENT_S, SILENT_GAPS = 30.0, 3.0  # some jobs report once an epoch


class JobView:
    """Jobs of one instant; make a new one for every answer."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._now, self._speed = driver.now, driver.engine.speed
        self._kinds = {node.id: node.kind for node, _ in driver.nodes()}
        self._waits = waits_of(driver)
        self.device = device_word(self._kinds.values())

    def describe_job(self, status: JobStatus) -> JobAnswer:
        """A job as its page and `weft job` show it."""
        record, job = status.record, status.record.job
        silent = self._silent_s(status)
        secrets = secrets_of(job)
        return JobAnswer(
            **row_fields(self._driver, status),
            reason=self.reason(status),
            allocation=self.allocation(record.allocation),
            failures=record.failures,
            nodes=job.demand.nodes or None,
            pty=job.launch is not None and job.launch.pty,
            model=job.model,
            preemptible=job.stoppable,
            command=[mask(word, secrets) for word in job.launch.command] if job.launch else [],
            saved_step=record.saved,
            silent_s=silent,
            after=encode(job.after),
            deadline=job.deadline,
            deadline_missed=record.missed,
            deadline_or=job.deadline_or.value,
            cpus=job.cpus,
            mem_gb=job.mem_gb,
            parameters=mask_all(dict(job.launch.parameters), secrets) if job.launch else {},
            suspended_by=record.suspended,
            measured=measurements_of(
                record.report, still=self._driver.ledger.idle.stands_still(record)
            ),
            metrics=metric_values(record.metrics, secrets),
            device=self.device,
            plans=[plan.text for plan in job.plans],
            plan=plan_text(record.allocation),
            notices=[
                Notice(at=at, level=how, text=mask(text, secrets))
                for at, how, text in record.notices
            ],
        )

    def allocation(self, on: Allocation | None) -> list[Part] | None:
        """Devices by node; None for a job that holds nothing."""
        if on is None:
            return None
        return [
            Part(
                node=part.node,
                gpus=list(part.gpus),
                kind=self._kinds.get(part.node, ""),
                share=on.sharing.share,
                cpus=part.cpus,
            )
            for part in on.slices
        ]

    def reason(self, status: JobStatus) -> str:
        """The reason why a job waits, or its trouble: the text that every client shows."""
        record, waits = status.record, self.waits_for(status)
        if memory := self.memory_wait(status):
            return mask(memory, secrets_of(record.job))
        text = waits.text if waits is not None else record.reason
        if not text and status.state == "running":
            text = record.said  # such as what a search for its batch tries now
            if not text and record.allocation is not None:
                text = why_small(self._waits, record.job, record.allocation)
        if status.state == "running" and is_idle(self._driver, record):
            text = describe_idle(self._driver.ledger.idle.uses[record.job.id], self.device)
        else:
            text = silence_words(self._silent_s(status)) or text
        if not text and status.state == "running":
            text = self.unguarded(status)
        return mask(text, secrets_of(record.job))

    def memory_wait(self, status: JobStatus) -> str:
        """Return words for a running job that waits for memory of its GPU; empty for others."""
        return words_for_wait(self._driver, status.record) if status.state == "running" else ""

    def unguarded(self, status: JobStatus) -> str:
        """Return words for a job whose GPU memory cannot wait, where that of others does."""
        return words_if_unguarded(self._driver, status.record)

    def _silent_s(self, status: JobStatus) -> float | None:
        running = self._driver.engine.real and status.state == "running"
        return silent_s(status.record, self._now, self._speed) if running else None

    def waits_for(self, status: JobStatus) -> Reason | None:
        """The reason why a job waits; None for one that does not."""
        if status.state not in ("pending", "preempted") and status.record.suspended is None:
            return None
        return why_waits(self._waits, self._driver.scheduler, status.record)


def metric_values(metrics: JobMetrics, secrets: Sequence[str]) -> dict[str, MetricValue]:
    """The metrics of a job without their curves."""
    return {
        mask(name, secrets): MetricValue(
            step=series.step, value=series.value, least=series.least, most=series.most
        )
        for name, series in metrics.series.items()
    }


def plan_text(on: Allocation | None) -> str:
    """The execution plan that came with what a job holds; empty where none did."""
    return "" if on is None or on.plan is None else on.plan.text


def name_fields(job: Job) -> dict[str, Any]:
    """The fields of a `JobName`: which job it is."""
    return {"id": job.id, "name": name_of(job), "tenant": job.tenant}


def row_fields(driver: Driver, status: JobStatus) -> dict[str, Any]:
    """The fields of a `JobRow`, which every description of a job has."""
    record, job = status.record, status.record.job
    moves = status.state == "running" and not driver.ledger.idle.stands_still(record)
    return {
        **name_fields(job),
        "user": job.user,
        "state": state_word(status),
        "priority": priority_word(job),
        "gpus": GpuRange(asked=job.demand.gpus, min=job.demand.min, max=job.demand.max),
        "kinds": list(job.demand.kinds),
        "submitted": record.submitted,
        "started": record.started,
        "ended": record.ended,
        "restarts": record.restarts,
        "attempt": record.attempt,
        "progress": progress_of(record, status.state),
        "batch": batch_of(record),
        "goodput": record.goodput if moves else None,
        "speed": record.speed if moves else None,
        "gpu_seconds": record.gpu_s.at(driver.now),
        "app": job.app,
    }


def is_idle(driver: Driver, record: JobRecord) -> bool:
    """True if a running job does not use its GPUs."""
    use = driver.ledger.idle.uses.get(record.job.id)
    same = use is not None and use.attempt == record.attempt
    return same and use is not None and use.idle_s >= driver.ledger.idle.idle_s


def silent_s(record: JobRecord, now: float, speed: float = 1.0) -> float | None:
    """Seconds of the wall clock without a word from a job that used to report, if remarkable."""
    if record.heard is None:
        return None
    at, gap = record.heard
    silence, usual = (now - at) / speed, gap / speed
    return silence if silence > max(SILENT_S, SILENT_GAPS * usual) else None


def silence_words(silent: float | None) -> str:
    """The words for a job that is silent; none for one that is not."""
    return "" if silent is None else f"no heartbeat for {silent:.0f} s"


def state_word(status: JobStatus) -> StateWord:
    """The state as it is shown."""
    return cast(StateWord, status.state)


def node_answer(
    node: Node,
    state: str,
    held: set[int],
    kept: Sequence[ReservedWindow] = (),
    reason: str = "",
    devices: Sequence[DeviceHealth] = (),
) -> NodeAnswer:
    """One machine; `kept` are the windows that are in force."""
    mask, why = 0, ""
    for window in kept:
        if not window.tenant and (bits := window.mask(node.id, node.gpus)):
            mask, why = mask | bits, window.name
    drained = [gpu for gpu in range(node.gpus) if mask >> gpu & 1]
    if state == "up" and len(drained) == node.gpus:
        aside = why.startswith(ASIDE)
        state = "set aside" if aside else "draining" if held else "drained"
    return NodeAnswer(
        id=node.id,
        state=cast(NodeWord, state),
        kind=node.kind,
        gpus=node.gpus,
        held=len(held),
        cpus=node.cpus,
        mem_gb=node.mem_gb,
        rack=node.rack,
        held_gpus=sorted(held),
        drained_gpus=drained,
        links="" if node.topology is None else node.topology.summary,
        reason=reason,
        health=[
            GpuHealth(gpu=device.gpu, fault=device.fault, aside=device.aside, notes=[*device.notes])
            for device in devices
        ],
    )


def node_answers(live: Live) -> list[NodeAnswer]:
    """Every machine with its state and which of its devices are held."""
    driver = live.driver
    held: defaultdict[str, set[int]] = defaultdict(set)
    for on in driver.scheduler.state.table.allocations:
        for part in on.slices if on is not None else ():
            held[part.node].update(part.gpus)
    windows = (read_window(name, text) for name, text in live.quotas.windows.items())
    kept = [window for window in windows if window.holds(driver.now)]
    health = driver.engine.health
    out_of_use = {entry.node.id: entry for entry in health.out_of_use}
    nodes = driver.nodes()
    there = {node.id: node for node in (*(entry.node for entry in health.out_of_use), *health.up)}
    absent = there.keys() - {node.id for node, _ in nodes}
    nodes += [(there[name], "down") for name in sorted(absent)]
    answers = []
    for node, word in nodes:
        why = out_of_use.get(node.id) if word != "up" else None
        state = "drained" if why is not None and why.drained else word
        reason = "" if why is None else why.reason
        devices = live.device_faults.devices(node.id)
        answers.append(node_answer(node, state, held[node.id], kept, reason, devices))
    return answers


def progress_of(record: JobRecord, state: str | None) -> float | None:
    """The progress that the job reported; one that has finished is done, whatever it said last."""
    part = record.report.progress
    return 1.0 if part is not None and state == "finished" else part


def batch_of(record: JobRecord) -> float | None:
    """The global batch: as reported, as decided, or as it begins."""
    if record.report.batch is not None:
        return record.report.batch
    on, job = record.allocation, record.job
    if on is not None and on.batch is not None:
        return float(on.batch.per_gpu * on.batch.accumulate * on.gpus)
    return float(job.batch.init) if job.batch else None
