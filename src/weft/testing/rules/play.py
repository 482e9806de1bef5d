"""A scenario played through the scheduler, and held against the model after every decision."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from weft.app.serve.rules import Quotas
from weft.core.events.actions import Action, Start, Stop, Wake
from weft.core.events.event import Event, Finished, Started, Stopped, Submitted, Woken
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Job, JobId
from weft.core.plan.about import Controls
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import build, read_spec
from weft.core.state.table import Column
from weft.frozen import frozen
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.learnt_costs import LearntCosts
from weft.predict.hinted import Hinted
from weft.runtime.deciding.second_look import SecondLook
from weft.testing.rules.model import Moment, Running
from weft.testing.rules.scenario import WHOLE, Scenario

PROMISED_S = 60.0


@frozen
class Problem:
    """What went wrong, and in which step."""

    seed: int
    policy: str
    step: int
    what: str


def play(scenario: Scenario) -> Problem | None:
    """The first thing that goes wrong; None if nothing does."""
    game = _Game(scenario)
    for number, step in enumerate(scenario.steps):
        if what := game.wait(step.after_s):
            return game.problem(number, what)
        if step.rules is not None:
            what = game.change(step.rules)
        elif step.job is not None:
            what = game.happen(Submitted(replace(step.job, submitted=game.now)))
        elif ended := game.running_job(step.turn):
            what = game.happen(Finished(ended, game.attempt(ended)))
        if what:
            return game.problem(number, what)
    what = game.wait(1000.0)
    return game.problem(len(scenario.steps), what) if what else None


class _Game:
    """The scheduler, its clock, and an engine that carries out every action at once."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._rules = scenario.rules
        self.now = 0.0
        self._wake: float | None = None
        self._second_look = SecondLook()
        self._undone: dict[tuple[JobId, str], float] = {}
        self._scheduler = Scheduler(
            build("policy", self._spec()),
            parse_cluster(scenario.cluster),
            knowledge=Knowledge(
                Hinted(), FittedBeliefs(), costs=LearntCosts(), pooled=PooledBeliefs()
            ),
        )

    def wait(self, seconds: float) -> str:
        """Pass the time, with every decision that is wished for on the way."""
        until = self.now + seconds
        while self._wake is not None and self._wake <= until:
            self.now = max(self._wake, self.now)
            if what := self.happen(Woken()):
                return what
        self.now = until
        return self._look(self._moment())

    def happen(self, event: Event) -> str:
        """One event; what is wrong after what was decided on it."""
        before = self._moment()
        if isinstance(event, Finished):
            left = {job: running for job, running in before.running.items() if job != event.job}
            before = replace(before, running=left)
        actions, due = self._scheduler.take_in(self.now, [event])
        self._carry_out(actions + (self._decide() if due else []) + self._scheduler.asks())
        return self._look(before)

    def change(self, rules: Quotas) -> str:
        """Other rules from now on."""
        self._rules = rules
        before = self._moment()
        self._scheduler.use(build("policy", self._spec()))
        self._carry_out(self._decide() + self._scheduler.asks())
        return self._look(before)

    def running_job(self, turn: int) -> JobId | None:
        """One of those that run."""
        names = sorted(self._scheduler.view(self.now).held())
        return names[turn % len(names)] if names else None

    def attempt(self, job: JobId) -> int:
        """The number of its attempt."""
        table = self._scheduler.state.table
        return int(table.get(table.row(job), Column.ATTEMPT))

    def problem(self, step: int, what: str) -> Problem:
        """With all that plays it again."""
        return Problem(self._scenario.seed, self._scenario.policy, step, what)

    def _spec(self) -> PartSpec:
        return self._rules.around(read_spec("policy", self._scenario.policy))

    def _decide(self) -> list[Action]:
        """As a service decides: with a second look where that may help."""
        plan = self._scheduler.propose(self.now)
        actions = self._scheduler.adopt(self.now, plan)
        again = self._second_look.after(self.now, plan, self._scheduler.state)
        if again is not None:
            self._scheduler.put_off(again)
        return actions

    def _look(self, before: Moment) -> str:
        """What is wrong, at once or for longer than was promised."""
        after = self._moment()
        undone = {(duty.job.id, duty.promise): duty.what for duty in after.undone()}
        self._undone = {key: self._undone.get(key, self.now) for key in undone}
        late = (undone[key] for key, since in self._undone.items() if self.now - since > PROMISED_S)
        return next(chain(after.wrong(before), late), "")

    def _moment(self) -> Moment:
        state = self._scheduler.state
        table, running, waiting = state.table, dict[JobId, Running](), list[Job]()
        since = table.column(Column.RAN_SINCE)
        for row, (job, on) in enumerate(zip(table.jobs, table.allocations, strict=True)):
            if on is None:
                waiting.append(job)
            else:
                running[job.id] = Running(job, on, float(since[row]))
        sized = Controls.COUNT in self._scheduler.policy.about.controls
        whole = self._scenario.policy in WHOLE
        return Moment(self.now, state.cluster, self._rules, running, tuple(waiting), sized, whole)

    def _carry_out(self, actions: list[Action]) -> None:
        """Stops and starts, at once."""
        while actions:
            answers: list[Event] = []
            for action in actions:
                if isinstance(action, Wake):
                    self._wake = action.at
                elif isinstance(action, Start):
                    answers.append(Started(action.job.id, action.attempt))
                elif isinstance(action, Stop):
                    answers.append(Stopped(action.job, action.attempt))
            actions = self._scheduler.step(self.now, answers) if answers else []
