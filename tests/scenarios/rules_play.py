"""A scenario played through the scheduler, and held against the model after every decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import numpy as np

from tests.scenarios.rules_model import Moment, Running
from weft.app.serve.rules import Quotas
from weft.core.events.actions import Action, Start, Stop, Wake
from weft.core.events.event import Event, Finished, Started, Stopped, Submitted, Woken
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Demand, Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.core.plan.about import Controls
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import build, read_spec
from weft.core.state.cells import TableColumns
from weft.frozen import frozen
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.learnt_costs import LearntCosts
from weft.predict.hinted import Hinted
from weft.runtime.deciding.decision import SecondLook

PROMISED_S = 60.0


@frozen
class RuleViolation:
    """What went wrong, and in which step."""

    seed: int
    policy: str
    step: int
    what: str


def play(scenario: RuleScenario) -> RuleViolation | None:
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

    def __init__(self, scenario: RuleScenario) -> None:
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
            skips_views=True,
        )

    def wait(self, seconds: float) -> str:
        """Pass the time, with every decision that is wished for on the way."""
        until = self.now + seconds
        while self._wake is not None and self._wake <= until:
            self.now = max(self._wake, self.now)
            if what := self.happen(Woken()):
                return what
        self.now = until
        return self._find_wrong(self._moment())

    def happen(self, event: Event) -> str:
        """One event; what is wrong after what was decided on it."""
        before = self._moment()
        if isinstance(event, Finished):
            left = {job: running for job, running in before.running.items() if job != event.job}
            before = replace(before, running=left)
        actions, due = self._scheduler.apply_events(self.now, [event])
        self._carry_out(actions + (self._decide() if due else []) + self._scheduler.wake_request())
        return self._find_wrong(before)

    def change(self, rules: Quotas) -> str:
        """Other rules from now on."""
        self._rules = rules
        before = self._moment()
        self._scheduler.use(build("policy", self._spec()))
        self._carry_out(self._decide() + self._scheduler.wake_request())
        return self._find_wrong(before)

    def running_job(self, turn: int) -> JobId | None:
        """One of those that run."""
        names = sorted(self._scheduler.view(self.now).held())
        return names[turn % len(names)] if names else None

    def attempt(self, job: JobId) -> int:
        """The number of its attempt."""
        table = self._scheduler.state.table
        return int(table.get(table.row(job), TableColumns.ATTEMPT))

    def problem(self, step: int, what: str) -> RuleViolation:
        """With all that plays it again."""
        return RuleViolation(self._scenario.seed, self._scenario.policy, step, what)

    def _spec(self) -> PartSpec:
        return self._rules.wrap_policy(read_spec("policy", self._scenario.policy))

    def _decide(self) -> list[Action]:
        """As a service decides: with a second look where that may help."""
        plan = self._scheduler.propose(self.now)
        actions = self._scheduler.adopt(self.now, plan)
        again = self._second_look.next_check(self.now, plan, self._scheduler.state)
        if again is not None:
            self._scheduler.put_off(again)
        return actions

    def _find_wrong(self, before: Moment) -> str:
        """What is wrong, at once or for longer than was promised."""
        after = self._moment()
        undone = {(duty.job.id, duty.promise): duty.what for duty in after.undone()}
        self._undone = {key: self._undone.get(key, self.now) for key in undone}
        late = (undone[key] for key, since in self._undone.items() if self.now - since > PROMISED_S)
        return next(chain(after.wrong(before), late), "")

    def _moment(self) -> Moment:
        state = self._scheduler.state
        table, running, waiting = state.table, dict[JobId, Running](), list[Job]()
        since = table.column(TableColumns.RAN_SINCE)
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


# ---- Drawn rules, and what happens under them


CLUSTERS = ("1x4:a100", "2x4:a100", "3x2:a100", "1x4:a100+1x4:t4", "2x2:a100+1x3:t4")
POLICIES = ("fifo:backfill=true", "las", "srtf", "gittins", "weft")  # these leave nothing idle
WHOLE = ("weft",)  # gives a gang of less than a node one node
TENANTS, GROUP = ("red", "blue", "grey"), "lab"
PAUSES_S = (1.0, 5.0, 40.0, 90.0, 700.0)
STEPS = 22
Value = TypeVar("Value")


@frozen
class RuleStep:
    """After that many seconds per job is submitted, or one of those that run ends.

    `turn` chooses which; `rules` are others from then on.
    """

    after_s: float
    job: Job | None = None
    turn: int = 0
    rules: Quotas | None = None


@frozen
class RuleScenario:
    """Rules around a policy on a cluster, and the steps, as drawn from a seed."""

    seed: int
    cluster: str
    policy: str
    rules: Quotas
    steps: tuple[RuleStep, ...]


def draw(seed: int, policies: Sequence[str] = POLICIES) -> RuleScenario:
    """A scenario; the same one for the same seed."""
    rng = np.random.default_rng(seed)
    text = _pick(rng, CLUSTERS)
    cluster = parse_cluster(text)
    rules = draw_rules(rng, cluster)
    steps = [_step(rng, cluster, number) for number in range(int(rng.integers(6, STEPS)))]
    return RuleScenario(seed, text, _pick(rng, policies), rules, tuple(steps))


def draw_rules(rng: np.random.Generator, cluster: Cluster) -> Quotas:
    """Each rule or none, each tenant or not."""
    half = cluster.gpus // 2
    limits = {who: float(rng.integers(1, half + 2)) for who in _some(rng, TENANTS, 0.35)}
    kinds = [f"{who}@{kind}" for who in TENANTS for kind in cluster.kinds]
    limits |= {name: float(rng.integers(0, 4)) for name in _some(rng, kinds, 0.12)}
    weights = {who: float(rng.integers(1, 4)) for who in _some(rng, TENANTS, 0.25)}
    own: dict[str, float] = {}
    parents: dict[str, str] = {}
    if rng.random() < 0.6:
        own = {who: float(rng.integers(1, half + 1)) for who in _some(rng, TENANTS, 0.6)}
        parents = dict.fromkeys(_some(rng, TENANTS, 0.3), GROUP)
        if parents and rng.random() < 0.5:
            own[GROUP] = float(rng.integers(1, cluster.gpus))
    return Quotas(
        limits,
        weights,
        own=own,
        parents=parents if own else {},
        min_run_s=_pick(rng, (0.0, 60.0, 300.0)) if own else None,
        windows=dict(_windows(rng, cluster)),
    )


def _windows(rng: np.random.Generator, cluster: Cluster) -> list[tuple[str, str]]:
    windows = []
    for number in range(int(rng.choice([0, 0, 1, 1, 2]))):
        node = cluster.nodes[int(rng.integers(len(cluster.nodes)))]
        gpus = sorted({int(gpu) for gpu in rng.integers(0, node.gpus, 2)})
        devices = node.id if rng.random() < 0.2 else f"{node.id}:{','.join(map(str, gpus))}"
        start = int(rng.choice([0, 0, 30, 400]))
        when = "" if rng.random() < 0.4 else f"@{start}-{start + int(rng.choice([100, 2000]))}"
        tenant = "" if rng.random() < 0.5 else f"={_pick(rng, TENANTS)}"
        soft = "~" * bool(rng.random() < 0.3)
        windows.append((f"w{number}", f"{soft}{devices}{when}{tenant}"))
    return windows


def _step(rng: np.random.Generator, cluster: Cluster, number: int) -> RuleStep:
    pause = _pick(rng, PAUSES_S)
    dice = rng.random()
    if dice < 0.3:
        return RuleStep(pause, turn=int(rng.integers(100)))
    if dice < 0.36:
        return RuleStep(pause, rules=draw_rules(rng, cluster))
    return RuleStep(pause, _job(rng, f"j{number}", cluster))


def _job(rng: np.random.Generator, name: str, cluster: Cluster) -> Job:
    kinds = () if rng.random() < 0.7 else (_pick(rng, cluster.kinds),)
    room = max(cluster.gpus_by_kind[kind] for kind in kinds or cluster.kinds)
    gpus = min(_pick(rng, (1, 1, 1, 2, 2, 3, 4)), room)
    level = _pick(rng, (-1, 0, 0, 0, 1))
    demand = Demand(gpus, kinds=kinds)
    dice = rng.random()
    if dice < 0.2:
        demand = Demand(gpus, 1, min(room, 2 * gpus), kinds)
    elif dice < 0.35:
        demand = Demand(1, kinds=kinds, share=0.5)
    return Job(
        JobId(name),
        demand=demand,
        tenant=_pick(rng, TENANTS),
        priority=float(level),
        tier=Tier.OPPORTUNISTIC if level < 0 else Tier.GUARANTEED,
        hints={"duration_s": _pick(rng, (60.0, 600.0, 6000.0))},
        preemptible=bool(rng.random() < 0.75) or dice < 0.2,
        launch=Launch(("true",), time_limit_s=_pick(rng, (0.0, 0.0, 0.0, 200.0))),
    )


def _some(rng: np.random.Generator, names: Sequence[str], part: float) -> list[str]:
    return [name for name in names if rng.random() < part]


def _pick(rng: np.random.Generator, values: Sequence[Value]) -> Value:
    return values[int(rng.integers(len(values)))]
