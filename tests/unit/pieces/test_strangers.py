"""Jobs that nobody knows join others on a GPU where their memory fits."""

from __future__ import annotations

from weft.core.events.actions import Start
from weft.core.events.event import Event, Failed, Finished, Observed, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.core.state.table import Column
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.learnt_costs import LearntCosts
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of
from weft.perf.sharing.programs import LearntPrograms


class World:
    """A scheduler on one H200, and jobs that start as soon as they are asked to."""

    def __init__(self, cluster: str = "1x1:h200", policy: str = "weft:strangers=true") -> None:
        knowledge = Knowledge(
            beliefs=FittedBeliefs(),
            colocation=Colocated(profile_of),
            costs=LearntCosts(),
            pooled=PooledBeliefs(),
            programs=LearntPrograms(),
        )
        self.scheduler = Scheduler(
            build("policy", policy), parse_cluster(cluster), knowledge=knowledge
        )
        self.now, self.started = 0.0, list[str]()

    def tell(self, *events: Event, after: float = 1.0) -> None:
        self.now += after
        for action in self.scheduler.step(self.now, events):
            if isinstance(action, Start):
                self.started.append(action.job.id)
                self.scheduler.step(self.now, [Started(action.job.id, action.attempt)])

    def submit(self, name: str, script: str = "", **more: object) -> None:
        job = Job(
            JobId(name),
            self.now,
            preemptible=False,
            launch=Launch(("python", *(script or f"{name}.py").split())),
            **more,  # type: ignore[arg-type] # fields of a job, whichever a test names
        )
        self.tell(Submitted(job))

    def report(self, name: str, mem_gb: float, steps: float = 50.0) -> None:
        report = Report(mem_gb=mem_gb, steps=steps)
        self.tell(Reported(JobId(name), self.attempt(name), report))

    def observe(self, name: str, peak_gb: float) -> None:
        self.tell(Observed(JobId(name), self.attempt(name), peak_gb))

    def finish(self, name: str) -> None:
        self.tell(Finished(JobId(name), self.attempt(name)))

    def attempt(self, name: str) -> int:
        table = self.scheduler.state.table
        return int(table.get(table.row(JobId(name)), Column.ATTEMPT))

    def held(self) -> list[Allocation]:
        return [on for on in self.scheduler.state.table.allocations if on is not None]

    def shares(self) -> dict[str, float]:
        table = self.scheduler.state.table
        return {
            job.id: round(on.sharing.share, 3)
            for job, on in zip(table.jobs, table.allocations, strict=True)
            if on is not None
        }


def test_a_newcomer_joins_a_job_that_is_known_to_leave_memory() -> None:
    world = World()
    world.submit("first")
    world.report("first", mem_gb=2.0)

    world.submit("second")

    assert world.started == ["first", "second"]
    assert world.shares() == {"first": 0.5, "second": 0.5}


def test_without_the_option_it_waits() -> None:
    world = World(policy="weft")
    world.submit("first")
    world.report("first", mem_gb=2.0)

    world.submit("second")

    assert world.started == ["first"]


def test_start_ups_of_jobs_never_seen_overlap_within_their_trial_memory() -> None:
    world = World()
    for name in "abcdefgh":
        world.submit(name)

    claims = [on.sharing.gpu_mem_gb for on in world.held() if on.sharing.gpu_mem_gb]

    assert 3 <= len(world.started) < 8
    assert sum(claims) <= 141.0
    assert min(claims) >= 141.0 / 17


def test_who_waits_joins_once_the_memory_of_those_there_is_known() -> None:
    world = World()
    for name in "abcdefgh":
        world.submit(name)
    before = list(world.started)

    for name in before:
        world.observe(name, 1.5)

    assert len(world.started) > len(before)


def test_a_program_that_ran_before_needs_no_trial() -> None:
    world = World()
    world.submit("run-1", "train.py --steps 100")
    world.report("run-1", mem_gb=60.0)
    world.finish("run-1")
    world.submit("run-2", "train.py --steps 250")

    world.submit("run-3", "train.py --steps 30")
    world.submit("run-4", "train.py --steps 90")

    assert world.started == ["run-1", "run-2", "run-3"]  # 66.5 GB each: no third fits


def test_who_declares_its_memory_is_believed() -> None:
    world = World()
    world.submit("large", gpu_mem_gb=100.0)
    world.submit("small", gpu_mem_gb=30.0)
    world.submit("other", gpu_mem_gb=30.0)

    assert world.started == ["large", "small"]


def test_who_refuses_company_has_none() -> None:
    world = World()
    world.submit("shy", shareable=False)
    world.report("shy", mem_gb=1.0)

    world.submit("second")

    assert world.started == ["shy"]


def test_who_ran_out_of_memory_beside_others_starts_again_alone() -> None:
    world = World()
    world.submit("first")
    world.report("first", mem_gb=1.0)
    world.submit("large")

    world.tell(
        Failed(JobId("large"), 1, "", retry=True, lost=True, code=1, out_of_memory=True),
        after=60.0,
    )
    assert world.started == ["first", "large"]
    world.finish("first")
    world.submit("third")

    assert world.started == ["first", "large", "large"]
    assert world.shares() == {"large": 1.0}
    world.observe("large", 90.0)
    assert world.shares() == {"large": 0.5, "third": 0.5}


def test_who_is_left_has_the_device_again() -> None:
    world = World()
    world.submit("first")
    world.report("first", mem_gb=2.0)
    world.submit("second")
    world.finish("first")

    assert world.shares() == {"second": 1.0}


def test_a_job_of_several_gpus_is_not_joined() -> None:
    world = World("1x2:h200")
    world.submit("gang", demand=Demand(2))
    world.report("gang", mem_gb=2.0)

    world.submit("second")

    assert world.started == ["gang"]


def test_devices_are_filled_before_they_are_shared() -> None:
    world = World("1x2:h200")
    for name in "abc":
        world.submit(name)
        world.report(name, mem_gb=2.0)

    assert world.shares() == {"a": 0.5, "b": 1.0, "c": 0.5}
