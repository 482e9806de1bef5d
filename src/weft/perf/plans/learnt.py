"""What is learnt of execution plans from jobs that run them: how fast each is on which GPUs.

A plan that nobody ran at a size is taken to be as fast as at the nearest size it was seen at, by
Rubick's law fitted to all that was reported of the program, or by a power of the GPUs until there
are as many reports as that has parameters. One that nobody ran anywhere is as fast as the law says,
else a little faster than the best that is known, so that a job that starts tries it. Plans under
which jobs died before they trained are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import Any

from weft.core.events.report import Report
from weft.core.knowledge.costs import Attempt
from weft.core.knowledge.plans import PlanChoice
from weft.core.knowledge.programs import program_of
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Config, Job
from weft.perf.plans.online import Seen, fit_reports, quantise, step_ms

SHAPE = 0.9  # speed grows with this power of GPUs where nobody saw it
HOPE = 1.01  # of a plan that nobody tried, against the best that is known
LATEST = 0.5  # part of the newest report in what is kept


class LearntPlans:
    """Samples per second by program, kind, GPUs and plan, and plans that failed."""

    def __init__(self) -> None:
        self._rates: dict[str, dict[str, float]] = {}  # `program/kind/plan` to GPUs
        self._failed: dict[str, list[int]] = {}
        self._batches: dict[str, int] = {}

    def knows(self, job: Job) -> bool:
        """Every job that declares plans: what is not known is tried."""
        return bool(job.plans)

    def choices(self, job: Job, config: Config) -> Sequence[PlanChoice]:
        """Plans that run there, as fast as they were seen or are hoped to be."""
        batch = self._batches.get(program_of(job))
        plans = [plan.on(config.gpus) for plan in job.plans]
        run = [plan for plan in plans if plan is not None and (not batch or plan.divides(batch))]
        fine = [
            plan for plan in run if config.gpus not in self._failed.get(_key(job, config, plan), ())
        ]
        rates = {plan: self._rate(job, config, plan) for plan in fine or run}
        known = [rate for rate in rates.values() if rate is not None]
        hoped = HOPE * max(known) if known else float(config.gpus) ** SHAPE
        choices = [
            PlanChoice(plan, hoped if rate is None else rate) for plan, rate in rates.items()
        ]
        return sorted(choices, key=lambda choice: -choice.rate)

    def observe(self, job: Job, kind: str, report: Report, attempt: Attempt) -> None:
        """A job told how long its steps take under the plan that it was given, or its own."""
        on = attempt.on
        plan = on.plan or job.plans[0].on(on.gpus)
        if plan is None or not report.step_s or not report.batch:
            return
        config = Config(kind, len(on.slices), on.gpus)
        key, rate = _key(job, config, plan), report.batch / report.step_s
        seen = self._rates.setdefault(key, {})
        before = seen.get(str(on.gpus), rate)
        seen[str(on.gpus)] = (1.0 - LATEST) * before + LATEST * rate
        self._batches[program_of(job)] = int(report.batch)
        if on.gpus in self._failed.get(key, ()):
            self._failed[key].remove(on.gpus)

    def fail(self, job: Job, kind: str, on: Allocation) -> None:
        """A job died under the plan that it was given; it counts if nobody ever trained so."""
        if on.plan is None:
            return
        key = _key(job, Config(kind, len(on.slices), on.gpus), on.plan)
        failed = self._failed.setdefault(key, [])
        if str(on.gpus) not in self._rates.get(key, {}) and on.gpus not in failed:
            failed.append(on.gpus)

    def forget(self, job: Job) -> None:
        """What was learnt is of all jobs of the program."""

    def save(self) -> Any:
        """All of it."""
        return {"rates": self._rates, "failed": self._failed, "batches": self._batches}

    def load(self, saved: Mapping[str, Any]) -> None:
        """As it was saved."""
        self._rates = {key: dict(seen) for key, seen in saved["rates"].items()}
        self._failed = {key: list(gpus) for key, gpus in saved["failed"].items()}
        self._batches = dict(saved["batches"])

    def _rate(self, job: Job, config: Config, plan: Execution) -> float | None:
        """As seen at this size, else by the law or from the nearest; None where neither tells."""
        seen = self._rates.get(_key(job, config, plan), {})
        if str(config.gpus) in seen:
            return seen[str(config.gpus)]
        law = self._law(job, config, plan)
        if not seen:
            return self._batches[program_of(job)] / law(plan) if law else None
        near = min(seen, key=lambda gpus: abs(log2(int(gpus) / config.gpus)))
        nearest = replace(plan, data=0).on(int(near))
        if law and nearest:
            return seen[near] * law(nearest) / law(plan)
        return float(seen[near] * (config.gpus / int(near)) ** SHAPE)

    def _law(
        self, job: Job, config: Config, plan: Execution
    ) -> Callable[[Execution], float] | None:
        """Seconds of a step by the law fitted to all plans of the job; None where it says nothing.

        Reports count on this kind, from any job of its program.
        """
        batch = self._batches.get(program_of(job))
        if not batch:
            return None
        seen = tuple(
            Seen(whole, quantise(batch / rate))
            for each in dict.fromkeys(replace(each, data=0) for each in job.plans)
            for gpus, rate in sorted(self._rates.get(_key(job, config, each), {}).items())
            if (whole := each.on(int(gpus))) is not None
        )
        law = fit_reports(seen, batch, plan)
        return None if law is None else lambda plan: step_ms(law, plan) / 1000.0


def _key(job: Job, config: Config, plan: Execution) -> str:
    return f"{program_of(job)}/{config.kind}/{replace(plan, data=0).text}"
