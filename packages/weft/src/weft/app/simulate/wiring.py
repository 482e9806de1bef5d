"""One way to wire a run: a world, a cluster and a policy in, an outcome out."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from time import perf_counter

from weft.app.simulate.setup import LiveTerms
from weft.app.simulate.world import World
from weft.core.asleep.rules import StopRules
from weft.core.errors import InvalidConfig
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.predictor import Predictor
from weft.core.model.cluster import Cluster
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import Needs
from weft.core.plan.policy import Policy
from weft.core.protocols import PerfModel
from weft.core.scheduler import Journal, Scheduler
from weft.core.spec.registry import Described, build, find, read_spec
from weft.core.state.table import JobTable
from weft.formulas.node_sleeper import NodeSleeper
from weft.frozen import frozen
from weft.perf.change_costs import StatedCosts
from weft.perf.learnt_costs import LearntCosts
from weft.perf.replay import OnLoan
from weft.sim.asleep import SleepSimulation
from weft.sim.collect import collect
from weft.sim.driver import Progress, Simulation
from weft.sim.faults import Faults
from weft.sim.fork import Fork
from weft.sim.loans import Loans
from weft.sim.physics import ChangeTerms, Physics
from weft.sim.result import Outcome
from weft.stack.layers import EligibleJobs

TICK_S = 60.0
REMEMBERED = 200  # events: 2,000 made a long simulation 2 % slower, all of it garbage collection
NO_FAULTS = Faults()
NO_LOANS = Loans()


@frozen
class PreparedSimulation:
    """A simulation that is ready to begin."""

    policy: Policy
    predictor: Predictor
    cluster: Cluster
    physics: Physics
    driver: Simulation
    weights: Mapping[str, float]
    scheduler: Scheduler

    def outcome(self, name: str, watch: Progress | None = None) -> Outcome:
        """Let it run to its end; `name` is what results call the policy, `watch` may end it."""
        began = perf_counter()
        self.driver.run(watch)
        return self.collect(name, perf_counter() - began)

    def collect(self, name: str, wall_s: float = 0.0) -> Outcome:
        reads = Needs.REMAINING in self.policy.about.needs
        label = self.predictor.label if reads else "none"
        counts, weights = self.driver.counts, self.weights
        return collect(name, label, self.physics, counts, self.cluster, wall_s, weights)


def wire(
    world: World,
    cluster: Cluster,
    policy: Policy,
    *,
    predictor: Described = "",
    seed: int = 0,
    faults: Faults = NO_FAULTS,
    checkpoint_s: float = 0.0,
    free_moves: bool = False,
    journal: Journal | None = None,
    progress: Progress | None = None,
    weights: Mapping[str, float] | None = None,
    loans: Loans = NO_LOANS,
    live: LiveTerms | None = None,
    stops: StopRules | None = None,
    sleeper: NodeSleeper | None = None,
) -> PreparedSimulation:
    """Physics of the world's truth, a scheduler that knows what it may, and the clock between.

    With `live` running jobs change their devices as they train; with `stops` they can sleep,
    with `sleeper` idle nodes can.
    """
    about = policy.about
    costs = StatedCosts(world.perf)
    if live is not None:
        terms = (live.pause_s, live.pause_gb_s, live.prepare_s)
        costs = StatedCosts(world.perf, True, *terms, able=world.able, later=live.restart_of)
    physics = Physics(
        faults.with_failures(world.trace, seed),
        _on_loan(world.perf, loans),
        checkpoint_s=checkpoint_s,
        tick_s=about.every or TICK_S,
        free_moves=free_moves,
        coupling=world.link_coupling,
        places=world.meeting_places,
        terms=ChangeTerms(
            world.interruption,
            about.resume_s,
            about.saves_every,
            about.resize_s,
            None if live is None or live.restart_s is None else costs.start_s,
        ),
    )
    default = "oracle" if Needs.REMAINING in about.needs else "none"
    known = build_simulated_predictor(predictor or default, physics, seed)
    named = dict(weights or world.trace.weights)
    scheduler = Scheduler(
        EligibleJobs(policy),
        cluster,
        knowledge=world.knowledge(known, LearntCosts(world.assumed_s)),
        seed=seed,
        journal=journal,
        weights=named,
        remembered=REMEMBERED,
        stops=stops,
        skips_views=journal is None,
    )
    driver = Simulation(
        scheduler,
        physics,
        cluster,
        faults=faults,
        loans=loans,
        seed=seed,
        progress=progress,
        live=None if live is None else costs.costs,
        sleeper=sleeper,
        sleep_sim=None if stops is None or stops.memory is None else SleepSimulation(stops.memory),
    )
    return PreparedSimulation(policy, known, cluster, physics, driver, named, scheduler)


def _on_loan(perf: PerfModel, loans: Loans) -> PerfModel:
    """The truth, with slower loaned machines where some are."""
    if not loans.nodes or loans.speed == 1.0:
        return perf
    return OnLoan(perf, frozenset(node.id for node in loans.nodes), loans.speed)


def wire_from(
    table: JobTable,
    now: float,
    left: Sequence[float],
    perf: PerfModel,
    cluster: Cluster,
    policy: Policy,
    knowledge: Knowledge,
    memory: object,
) -> Fork:
    """A simulation that begins in the middle: every job of `table` with `left` seconds.

    `knowledge` is copied: what is learnt on the way stays there.
    """
    about = policy.about
    trace = Trace("now", tuple(zip(table.jobs, map(Truth, left), strict=True)))
    terms = ChangeTerms(resume_s=about.resume_s, resize_s=about.resize_s)
    physics = Physics(trace, perf, tick_s=about.every or TICK_S, terms=terms)
    scheduler = Scheduler(policy, cluster, knowledge=copy.deepcopy(knowledge), skips_views=True)
    scheduler.memory = memory
    return Fork(scheduler, physics, cluster, table, now)


def build_simulated_predictor(described: Described, physics: Physics, seed: int) -> Predictor:
    """The predictor of that name, given what it asks for of the simulation."""
    spec = read_spec("predictor", described)
    asks = find("predictor", spec.name).asks
    if asks.hint and not any(asks.hint in job.hints for job, _ in physics.trace):
        raise InvalidConfig(
            f"no job of {physics.trace.name!r} has a hint `{asks.hint}`, so `{spec.name}` "
            "knows nothing",
            hint="choose oracle, noisy or alike",
        )
    offered = {"truth": physics.remaining, "lengths": physics.lengths, "seed": seed}
    predictor: Predictor = build("predictor", spec, **{fact: offered[fact] for fact in asks.facts})
    return predictor
