"""A log played again: nodes, jobs and attempts as they stood after each line.

It is written from what events mean (`weft.core.events.event`) alone. What cannot be it reports as
a finding and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from weft.core.events import event as facts
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job
from weft.core.plan.reasons import Blocker
from weft.core.spec.part_spec import PartSpec
from weft.core.stops import SLEEPS, Rung
from weft.judge.devices import DeviceClaims, devices_of
from weft.judge.finding import LAWFUL, Finding
from weft.judge.lives import Attempt, GivenReason, Life
from weft.judge.log_lines import LogLine

SUCCEEDED, FAILED, CANCELLED = "succeeded", "failed", "cancelled"


class PlayedLog:
    """Everything that a log says, up to its last line that was taken in."""

    def __init__(self) -> None:
        self.whole = True
        self.now = 0.0
        self.line = 0
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Life] = {}
        self.policy: PartSpec | None = None
        self.terms: facts.PolicyTerms | None = None
        self.findings: list[Finding] = []
        self.decided_at: float | None = None
        self.number = 0  # of the last decision
        self.wake_at: float | None = None
        self.changed_at = 0.0  # when something last happened that a decision may follow from
        self.knows_nodes = False
        self.active: dict[str, Life] = {}
        self._lingering: dict[str, Life] = {}  # ended, and their last process is not gone

    # ---- what is so now

    @property
    def policy_name(self) -> str:
        """The policy that decides, by name."""
        return "" if self.policy is None else self.policy.name

    def present(self) -> Iterator[Life]:
        """Jobs that have not ended, and those of which something is left."""
        yield from self.active.values()
        yield from self._lingering.values()

    def held(self) -> Iterator[tuple[str, Allocation]]:
        """Yield jobs with the allocations that they are promised."""
        for name, life in self.active.items():
            if life.on is not None:
                yield name, life.on

    def claims(self) -> DeviceClaims:
        """All promises together."""
        return DeviceClaims.of(self.held())

    def physical(self) -> Iterator[tuple[str, Allocation]]:
        """Yield jobs with the allocations of their processes, taken away since or not."""
        for life in self.present():
            for attempt in life.attempts.values():
                if attempt.holds:
                    yield life.job.id, attempt.on
                    if attempt.besides is not None:
                        yield life.job.id, attempt.besides

    def waiting(self) -> Iterator[Life]:
        """Jobs that wait for devices, and for nothing and no one else."""
        running: dict[tuple[str, str], int] = {}
        for life in self.active.values():
            if life.current is not None and life.job.max_parallel:
                app = (life.job.tenant, life.job.app)
                running[app] = running.get(app, 0) + 1
        for life in self.active.values():
            if not life.waits or life.suspended or self.awaited(life):
                continue
            if life.job.max_parallel:
                app = (life.job.tenant, life.job.app)
                running[app] = running.get(app, 0) + 1
                if running[app] > life.job.max_parallel:
                    continue
            if life.pause_ends() <= self.now:
                yield life

    def awaited(self, life: Life) -> list[str]:
        """Jobs that it is to come after, and that have not ended."""
        return [name for name in life.job.after.jobs if name in self.active]

    def least_gpus(self, job: Job) -> int:
        """GPUs below which the policy cannot start a job."""
        sizes = self.terms is not None and self.terms.sizes
        return job.demand.min if sizes else job.demand.gpus

    def rules(self, wrapper: str) -> Mapping[str, object]:
        """Parameters of a rule around the policy; empty without it."""
        wrappers = self.policy.wrappers if self.policy is not None else ()
        return next((w.params for w in wrappers if w.name == wrapper), {})

    # ---- taking in

    def report_impossible(self, what: str, jobs: tuple[str, ...], text: str) -> None:
        """Something that cannot be, at this line."""
        self.findings.append(Finding(LAWFUL, what, self.now, self.line, jobs, text))

    def play_line(self, line: LogLine) -> None:  # noqa: C901 - one case an event
        """Fold one line of the log into what is known."""
        event = line.event
        if line.at < self.now - 1e-9:
            self.line = line.number
            self.report_impossible(
                "time runs back", (), f"{line.at:.3f} comes after {self.now:.3f}"
            )
        self.now, self.line = max(line.at, self.now), line.number
        match event:
            case facts.Submitted(job):
                self._submit(job)
            case facts.Decided():
                self._decide(event)
            case facts.NodeUp(node):
                self._node_up(node)
            case facts.NodeDown(node):
                self._node_down(node)
            case facts.PolicyChanged():
                self.policy, self.terms = event.policy, event.terms
                self.changed_at = self.now
                for life in self.active.values():
                    life.reason = None
            case facts.Woken():
                self.wake_at = None
            case facts.LoanRecalled() | facts.Refitted():
                pass
            case _ if event.job in self.jobs:
                self._of_job(self.jobs[event.job], event)
            case _ if self.whole:
                name = type(event).__name__
                self.report_impossible(
                    "unknown job", (event.job,), f"{name} of a job that was never submitted"
                )
            case _:
                pass  # of a job from before the log begins

    def _of_job(self, life: Life, event: facts.OfJob) -> None:  # noqa: C901, PLR0912, PLR0915
        life.count_until(self.now)
        match event:
            case facts.Started(_, number):
                self._start(life, number)
            case facts.Stopped(_, number):
                self._stop(life, number)
                self._forget(life)
            case facts.Finished(_, number):
                self._leave(life, number, SUCCEEDED)
                self._forget(life)
            case facts.Failed(_, number):
                self._leave(life, number, "" if event.retry else FAILED)
                self._forget(life)
            case facts.StartFailed(_, number):
                self._leave(life, number, "")
                self._forget(life)
            case facts.Cancelled():
                self._end(life, CANCELLED)
            case facts.Suspended(_, _, rung):
                self._take_away(life, rung)
                life.suspended, life.reason = True, None
            case facts.Resumed():
                life.suspended, self.changed_at = False, self.now
            case facts.PriorityChanged(_, priority, tier):
                life.job = replace(life.job, priority=priority, tier=tier)
                self.changed_at = self.now
            case facts.Saved():
                life.saved = self.now
            case facts.Resized(_, number, epoch):
                if self._answers(life, number, epoch):
                    life.attempts[number].besides = None
            case facts.ResizeFailed(_, number, epoch):
                if self._answers(life, number, epoch):
                    attempt = life.attempts[number]
                    to = attempt.on
                    attempt.on, attempt.besides = attempt.besides or to, None
                    self._take_away(life, Rung.RESTART)
                    self._promise(life, to)
            case facts.StartedAhead(_, number, on):
                life.count = max(life.count, number)
                life.attempts[number] = Attempt(number, on, self.now, falling=True, leaving=True)
            case facts.Slept() | facts.SleepFailed() | facts.Awoke():
                self._sleep(life, event)
            case _:
                pass

    def _submit(self, job: Job) -> None:
        if job.id in self.jobs:
            self.report_impossible(
                "submitted twice", (job.id,), "a job of that name was submitted before"
            )
            return
        life = Life(job, self.now, self.line, counted=self.now)
        self.jobs[job.id] = self.active[job.id] = life
        self.changed_at = self.now

    # ---- decisions

    def _decide(self, decided: facts.Decided) -> None:  # noqa: C901, PLR0912 - in its order
        if decided.number <= self.number:
            text = f"decision {decided.number} after decision {self.number}"
            self.report_impossible("decisions out of order", (), text)
        self.number, self.decided_at, self.wake_at = decided.number, self.now, decided.wake_at
        begin: list[tuple[Life, Allocation]] = []
        for name, to in decided.changes.items():
            life = self.active.get(name)
            if life is None:
                if self.whole or name in self.jobs:
                    self.report_impossible(
                        "devices without a job", (name,), "it has ended, or never was"
                    )
                continue
            life.count_until(self.now)
            was = life.on
            if to is not None and was is not None and was.stays(to):
                life.attempts[life.current or 0].on = to
            elif to is not None and was is not None and name in decided.live:
                self._resize(life, to)
            else:
                self._take_away(life, decided.sleeps.get(name, Rung.RESTART))
                if to is not None:
                    begin.append((life, to))
        for name, rung in decided.sleeps.items():
            if name not in decided.changes and name in self.active:
                self._deepen(self.active[name], rung)
        for name in decided.rejected:
            if name in self.active:
                self._end(self.active[name], FAILED)
        for life, to in begin:
            self._may_begin(life)
            self._promise(life, to)
        self._reasons(decided)
        for name in decided.promised:
            if name in self.jobs:
                self.jobs[name].deadline_promised = self.line

    def _reasons(self, decided: facts.Decided) -> None:
        for name, text in decided.reasons.items():
            if name in self.active:
                blocker = decided.blockers.get(name, Blocker.SAID)
                numbers = decided.facts.get(name, {})
                given = GivenReason(text, blocker, numbers, self.now, self.line)
                self.active[name].reason = given if text else None
        for name, to in decided.changes.items():
            if to is not None and name in self.active:
                self.active[name].reason = None

    def _may_begin(self, life: Life) -> None:
        name, job = life.job.id, life.job
        if life.suspended:
            self.report_impossible(
                "starts while suspended", (name,), "it was suspended, and gets devices"
            )
        if awaited := self.awaited(life):
            text = f"it was to come after {', '.join(awaited)}"
            self.report_impossible("starts before others", (name, *awaited), text)
        if job.max_parallel:
            beside = [
                other.job.id
                for other in self.active.values()
                if other.current is not None
                and (other.job.tenant, other.job.app) == (job.tenant, job.app)
            ]
            if len(beside) >= job.max_parallel:
                text = f"{len(beside)} of {job.app} hold devices, {job.max_parallel} may"
                self.report_impossible("too many at once", (name, *beside), text)

    def _promise(self, life: Life, to: Allocation) -> None:
        for attempt in life.attempts.values():
            if (attempt.asleep or attempt.falling) and attempt.on.stays(to):
                attempt.on, life.current = to, attempt.number
                return
            if attempt.asleep or attempt.falling:
                attempt.leaving, attempt.falling = True, False
        life.count, life.epoch = life.count + 1, 0
        life.current = life.count
        life.attempts[life.count] = Attempt(life.count, to, self.now)

    def _take_away(self, life: Life, rung: Rung) -> None:
        if life.current is None:
            return
        attempt = life.attempts[life.current]
        life.current = None
        if attempt.asleep or attempt.falling:
            attempt.falling = not attempt.asleep
            return
        attempt.leaving, attempt.falling = True, rung in SLEEPS

    def _deepen(self, life: Life, rung: Rung) -> None:
        for attempt in life.attempts.values():
            if (attempt.asleep or attempt.falling) and rung not in SLEEPS:
                attempt.leaving, attempt.falling = True, False

    def _resize(self, life: Life, to: Allocation) -> None:
        attempt = life.attempts[life.current or 0]
        besides = {*devices_of(attempt.on)}
        slices = list(attempt.on.slices)
        if attempt.besides is not None:
            more = (
                replace(s, gpus=tuple(g for g in s.gpus if (s.node, g) not in besides))
                for s in attempt.besides.slices
            )
            slices += [part for part in more if part.gpus]
        attempt.besides = replace(attempt.on, slices=tuple(slices))
        attempt.on, attempt.changed = to, self.now
        life.epoch += 1

    # ---- attempts

    def _answers(self, life: Life, number: int, epoch: int) -> bool:
        attempt = life.attempts.get(number)
        return attempt is not None and attempt.besides is not None and life.epoch == epoch

    def _start(self, life: Life, number: int) -> None:
        name, attempt = life.job.id, life.attempts.get(number)
        if attempt is None:
            if self.whole:
                self.report_impossible(
                    "starts without devices", (name,), f"attempt {number} was never promised"
                )
            return
        if attempt.started is not None:
            self.report_impossible("starts twice", (name,), f"attempt {number} runs already")
            return
        if others := [a.number for a in life.attempts.values() if a.holds]:
            text = f"attempt {number} starts while attempt {others[0]} runs"
            self.report_impossible("two attempts", (name,), text)
        attempt.started = self.now
        life.starts += 1
        if life.first_start is None:
            life.first_start = self.now

    def _stop(self, life: Life, number: int) -> None:
        attempt = life.attempts.pop(number, None)
        if attempt is None:
            return
        if life.current == number:
            if not attempt.leaving:
                text = f"attempt {number} stopped, and was not asked to"
                self.report_impossible("stops by itself", (life.job.id,), text)
            life.current = None

    def _leave(self, life: Life, number: int, outcome: str) -> None:
        attempt = life.attempts.pop(number, None)
        if attempt is None:
            if outcome and not life.outcome and self.whole:
                text = f"attempt {number} ends, and was not there"
                self.report_impossible("ends without an attempt", (life.job.id,), text)
            return
        current = life.current == number
        if outcome == SUCCEEDED and attempt.started is None and self.whole:
            self.report_impossible(
                "ends before its start", (life.job.id,), f"attempt {number} never started"
            )
        if current:
            life.current = None
        self.changed_at = self.now
        if outcome:
            self._end(life, outcome)
        elif (current or attempt.asleep or attempt.falling) and not life.outcome:
            life.retries, life.failed = life.retries + 1, self.now

    def _end(self, life: Life, outcome: str) -> None:
        if life.outcome:
            return
        life.count_until(self.now)
        self._take_away(life, Rung.RESTART)
        for attempt in life.attempts.values():
            attempt.leaving, attempt.falling = True, False
        life.outcome, life.ended, life.suspended, life.reason = outcome, self.now, False, None
        self.active.pop(life.job.id, None)
        self._lingering[life.job.id] = life
        self._forget(life)
        self.changed_at = self.now

    def _forget(self, life: Life) -> None:
        if not life.attempts:
            self._lingering.pop(life.job.id, None)

    def _sleep(self, life: Life, event: facts.Slept | facts.SleepFailed | facts.Awoke) -> None:
        attempt = life.attempts.get(event.attempt)
        if attempt is None:
            return
        if isinstance(event, facts.Slept):
            if attempt.falling:
                attempt.asleep, attempt.falling, attempt.leaving = True, False, False
                attempt.besides = None
        elif isinstance(event, facts.SleepFailed):
            attempt.falling = False
        elif attempt.asleep and life.current == attempt.number:
            attempt.asleep = False
            if attempt.started is None:  # it was started ahead of its turn
                attempt.started = self.now
                life.starts += 1
                life.first_start = self.now if life.first_start is None else life.first_start

    # ---- machines

    def _node_up(self, node: Node) -> None:
        self.knows_nodes, self.changed_at = True, self.now
        if node.id in self.nodes and self.nodes[node.id] != node:
            self._node_down(node.id)
        self.nodes[node.id] = node

    def _node_down(self, node: str) -> None:
        if self.nodes.pop(node, None) is None:
            return
        self.changed_at = self.now
        for life in self.active.values():
            life.count_until(self.now)
            for attempt in life.attempts.values():
                parts = [*attempt.on.slices, *(attempt.besides.slices if attempt.besides else ())]
                if any(part.node == node for part in parts):
                    if life.current == attempt.number:
                        self._take_away(life, Rung.RESTART)
                    attempt.leaving, attempt.falling = True, False


class LogWatch:
    """Called around every line, and whenever time passes between two."""

    def before(self, replay: PlayedLog, line: LogLine) -> None:
        """The line is about to be taken in."""

    def after(self, replay: PlayedLog, line: LogLine) -> None:
        """The line was taken in."""

    def pause(self, replay: PlayedLog, until: float) -> None:
        """Nothing happens from `replay.now` to `until`."""

    def close(self, replay: PlayedLog) -> None:
        """The log is over."""
