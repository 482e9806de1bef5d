"""The worked examples of IADeep (SC 2023), its invariants and its gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.seeds import seeds

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Finished
from weft.core.knowledge.knowledge import TunableBatch
from weft.core.knowledge.profile import Profile
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Batch, BatchRange, Demand, Discipline, Job, JobId
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.formulas.sharing.degradation import degradation
from weft.perf.sharing.batching import MODELS, find_batching
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered
from weft.perf.sharing.hinted_profile import profile_of
from weft.policies.fifo import Fifo
from weft.testing import view_of, with_knowledge
from weft_papers.iadeep import authors
from weft_papers.iadeep.policy import IADeep, IADeepMemory
from weft_papers.iadeep.tests.iadeep_reference import Arrival, simulate
from weft_papers.iadeep.tuning import (
    DeviceTuner,
    TuningSession,
    fits,
    interference,
    noise_scale,
    sizes_to_search,
)
from weft_papers.tests.together import Done, together

KIND = "rtx3090"


def truth() -> Colocated:
    return Colocated(profile_of, Unordered("timeslicing"), batching=find_batching)


def task(name: str, model: str, at: float = 0.0) -> Job:
    init = MODELS[model].known.init
    return Job(JobId(name), at, model=model, batch=BatchRange(init, 2 * init, 2 * init))


# ---- formulas


def test_the_noise_scale_of_two_gradient_norms() -> None:
    assert noise_scale(32, 0.9, 0.6) == pytest.approx(64.0)


@pytest.mark.parametrize(
    ("step_s", "batch", "efficiency", "progress", "code"),
    [
        (0.20, 512, 1.0, 1.6667, 1.6667),
        (0.30, 1024, 0.74704, 1.67328, 0.93379),
        (0.12, 256, 1.20382, 1.66138, 2.40764),
    ],
)
def test_degradation_in_both_forms(
    step_s: float, batch: int, efficiency: float, progress: float, code: float
) -> None:
    known = TunableBatch(512, 0.0, 0.0, 1000.0)
    stretch, growth = step_s / 0.12, batch / 512

    assert known.efficiency(batch) == pytest.approx(efficiency, abs=1e-5)
    e = known.efficiency(batch)
    assert degradation(stretch, growth, e) == pytest.approx(progress, abs=1e-4)
    assert authors.degradation(stretch, growth, e) == pytest.approx(code, abs=1e-4)


def test_degradation_at_the_initial_batch_is_the_stretch_of_the_step() -> None:
    assert degradation(1.7, 1.0, 1.0) == 1.7


@given(st.floats(1.0, 4.0), st.floats(1.0, 3.0), st.floats(1.0, 1e4))
def test_a_larger_batch_pays_only_while_steps_grow_slower_than_their_worth(
    growth: float, stretch: float, noise: float
) -> None:
    known = TunableBatch(100, 0.0, 0.0, noise)
    e = known.efficiency(round(100 * growth))
    larger = round(100 * growth) / 100

    pays = degradation(stretch, larger, e) < degradation(1.0, 1.0, 1.0)

    assert pays == (stretch < larger * e) or stretch == pytest.approx(larger * e)


@pytest.mark.parametrize(
    ("batch", "low", "step", "count"),
    [(8, 4, 1, 12), (32, 20, 1, 44), (256, 170, 10, 35), (512, 340, 21, 33), (8192, 5460, 341, 33)],
)
def test_the_grid_of_a_job(batch: int, low: int, step: int, count: int) -> None:
    sizes = sizes_to_search(batch)

    assert (sizes[0], sizes[1] - sizes[0], len(sizes)) == (low, step, count)
    assert max(sizes) < 2 * batch
    assert max(sizes_to_search(batch, batch)) <= batch


def test_interference_of_two_jobs() -> None:
    assert interference([0.20 / 0.12, 0.11 / 0.09]) == pytest.approx(0.8889, abs=1e-4)


# ---- placement


def held(done: Done) -> list[dict[JobId, Allocation]]:
    """Everything that is held after each decision."""
    now: dict[JobId, Allocation] = {}
    history = []
    for _, event in done.log:
        if isinstance(event, Decided):
            for job, on in event.changes.items():
                now.pop(job, None)
                if on is not None:
                    now[job] = on
            history.append(dict(now))
        elif isinstance(event, Finished):
            now.pop(event.job, None)
    return history


def placed(view: View) -> dict[str, str]:
    plan = IADeep().decide(view)
    return {
        job: f"{on.slices[0].node}/{on.slices[0].gpus[0]}" for job, on in view.after(plan).items()
    }


def test_idle_devices_come_first() -> None:
    jobs = [task(f"j{i}", "ad-gcl") for i in range(5)]
    view = with_knowledge(view_of("2x2:rtx3090", *jobs), colocation=truth())

    where = placed(view)

    assert len({where[f"j{i}"] for i in range(4)}) == 4
    assert where["j4"] in {where[f"j{i}"] for i in range(4)}


def test_beside_whom_it_disturbs_least() -> None:
    jobs = [task("heavy", "resnet50"), task("light", "ad-gcl"), task("new", "bert")]
    view = with_knowledge(view_of("1x2:rtx3090", *jobs), colocation=truth())

    where = placed(view)

    assert where["new"] == where["light"]


def test_two_light_neighbours_disturb_less_than_a_heavy_one() -> None:
    # Beside x both would take 1.25 times as long: 0.25 + 0.25. Beside y and z each of three would
    # take 1.1 times as long: 0.1 + 0.1 + 0.1, though the times themselves sum to more.
    def speeds(group: Sequence[Profile]) -> list[float]:
        heavy = any(profile.tag == "heavy" for profile in group)
        return [1.0 / 1.25 if heavy else 1.0 / 1.1] * len(group)

    models = {"x": "heavy", "y": "light", "z": "light", "new": "light"}
    hints = {"gpu_util": 20.0, "gmem_mib": 1024.0}
    jobs = [Job(JobId(name), model=model, hints=hints) for name, model in models.items()]
    view = with_knowledge(view_of("1x2:rtx3090", *jobs), colocation=Colocated(profile_of, speeds))

    held = view.after(IADeep(tune=False).decide(view))

    gpus = {job: on.slices[0].gpus[0] for job, on in held.items()}
    assert gpus == {"x": 0, "y": 1, "z": 1, "new": 1}


def test_a_record_is_believed_before_the_model() -> None:
    jobs = [task("heavy", "resnet50"), task("light", "ad-gcl"), task("new", "bert")]
    memory = IADeepMemory(records={"bert+resnet50": 0.01, "ad-gcl+bert": 0.02})
    view = replace(with_knowledge(view_of("1x2:rtx3090", *jobs), colocation=truth()), memory=memory)

    where = placed(view)

    assert where["new"] == where["heavy"]


class Notes:
    """A policy whose last memory is kept."""

    def __init__(self, inner: IADeep) -> None:
        self.inner = inner
        self.last = IADeepMemory()

    @property
    def about(self) -> About:
        return self.inner.about

    def decide(self, view: View) -> Plan:
        plan = self.inner.decide(view)
        assert isinstance(plan.memory, IADeepMemory)
        self.last = plan.memory
        return plan


def test_what_was_measured_goes_on_record() -> None:
    work = [(task("a", "lstm"), 600.0), (task("b", "bert"), 600.0)]
    watched = Notes(IADeep(tune=False))

    together(watched, work, "1x1:rtx3090", truth())

    jobs = [job for job, _ in work]
    speeds = truth().speeds(jobs, KIND, Discipline.NONE)
    expected = sum(1.0 / s - 1.0 for s in speeds)
    assert watched.last.records == {"bert+lstm": pytest.approx(expected)}


def test_a_device_being_tuned_takes_nobody_in() -> None:
    work = [(task(f"j{i}", "ad-gcl", 2.0 * i), 900.0) for i in range(4)]

    tuned = together(IADeep(), work, "1x1:rtx3090", truth())
    plain = together(IADeep(tune=False), work, "1x1:rtx3090", truth())

    assert plain.start == {"j0": 0.0, "j1": 2.0, "j2": 4.0, "j3": 6.0}
    assert tuned.start["j1"] == 2.0
    assert tuned.start["j2"] > 2.0 + 5.0 * 4
    assert tuned.start["j3"] > tuned.start["j2"] + 5.0 * 4


def test_a_busy_device_takes_nobody_in() -> None:
    busy = Job(JobId("busy"), hints={"gpu_util": 100.0})
    view = with_knowledge(view_of("1x1:rtx3090", busy, task("new", "ad-gcl")), colocation=truth())

    assert set(placed(view)) == {"busy"}


def test_gangs_share_with_nobody() -> None:
    gang = Job(JobId("gang"), demand=Demand(2))
    view = with_knowledge(view_of("1x2:rtx3090", gang, task("new", "ad-gcl")), colocation=truth())

    assert set(placed(view)) == {"gang"}


# ---- tuning


def test_a_search_ends_with_the_best_that_was_measured() -> None:
    session = TuningSession((JobId("a"),), (512,), 0.0).with_result(1.6)
    session = replace(session, asked=(400,)).with_result(1.4)
    session = replace(session, asked=(340,)).with_result(1.5)

    assert session.best == (400,)


@examples(40)
@given(
    st.lists(st.sampled_from(sorted(MODELS)), min_size=1, max_size=3),
    st.floats(0.0, 1.0),
    st.integers(0, 10_000),
)
def test_no_search_asks_for_more_memory_than_there_is(
    models: list[str], slack: float, seed: int
) -> None:
    jobs = [JobId(f"{i}") for i in range(len(models))]
    known = {job: MODELS[model].known for job, model in zip(jobs, models, strict=True)}
    init = tuple(known[job].init for job in jobs)
    least = sum(known[job].mem_gb(known[job].init) for job in jobs)
    room = least * (1.0 + 0.5 * slack) + 1e-9
    rng = np.random.default_rng(seed)
    tuner = DeviceTuner(8, 8, 1.0)
    session: TuningSession | None = TuningSession(tuple(jobs), init, 0.0)
    while session is not None:
        assert fits([known[j] for j in jobs], np.array([session.asked], dtype=float), room).all()
        session = tuner.next_session(
            session.with_result(float(rng.uniform(1, 3))), known, dict.fromkeys(jobs), room, 0.0
        )


@examples(10)
@given(st.integers(0, 10_000), st.sampled_from([IADeep(), authors.AuthorsIADeep()]))
def test_memory_is_never_exceeded_and_batches_stay_in_their_range(
    seed: int, policy: IADeep
) -> None:
    rng = np.random.default_rng(seed)
    names = sorted(MODELS)
    work = []
    for i, at in enumerate(np.cumsum(rng.exponential(40.0, 15))):
        model = names[int(rng.integers(len(names)))]
        work.append((task(f"{model}-{i}", model, float(at)), float(rng.uniform(60, 900))))
    jobs = {job.id: job for job, _ in work}
    most = parse_cluster("1x1:rtx3090").nodes[0].device_gb

    done = together(policy, work, "1x2:rtx3090", truth())

    largest = 0
    for state in held(done):
        used: dict[int, float] = {}
        for job, on in state.items():
            known = find_batching(jobs[job])
            assert known is not None
            init = known.known.init
            size = init if on.batch is None else on.batch.per_gpu
            assert on.batch is None or sizes_to_search(init)[0] <= size < 2 * init
            gpu = on.slices[0].gpus[0]
            used[gpu] = used.get(gpu, 0.0) + known.known.mem_gb(size)
            assert on.sharing.gpu_mem_gb == pytest.approx(known.known.mem_gb(size))
        largest = max(largest, len(state))
        assert max(used.values(), default=0.0) <= most + 1e-9
    assert largest > 2


def test_a_job_left_alone_goes_back_to_its_own_batch() -> None:
    work = [(task("vgg", "vgg16"), 2000.0), (task("bert", "bert"), 300.0)]

    done = together(IADeep(), work, "1x1:rtx3090", truth())

    batches = [r.on.batch for r in done.physics.runs if r.seq == 0]
    assert any(b is not None for b in batches)
    assert batches[-1] == Batch(512)


def test_tuning_makes_a_pair_faster_than_leaving_it_alone() -> None:
    work = [(task("vgg", "vgg16"), 3000.0), (task("bert", "bert"), 3000.0)]

    tuned = together(IADeep(), work, "1x1:rtx3090", truth())
    plain = together(IADeep(tune=False), work, "1x1:rtx3090", truth())

    assert max(tuned.end.values()) < 0.97 * max(plain.end.values())


def test_the_search_finds_nearly_the_best_pair_of_batches() -> None:
    models = ("vgg16", "bert")
    jobs = [task(m, m) for m in models]
    known = [MODELS[m] for m in models]
    law = Unordered("timeslicing")

    def cost(sizes: Sequence[int]) -> float:
        group: list[Profile] = [k.profile(s) for k, s in zip(known, sizes, strict=True)]
        speeds = [v * k.speed(s) for v, k, s in zip(law(group), known, sizes, strict=True)]
        return sum(1.0 / v for v in speeds)

    work = [(job, 3000.0) for job in jobs]
    done = together(IADeep(), work, "1x1:rtx3090", truth())
    last = {}
    for state in held(done):
        if len(state) == 2:
            last = state
    batches = [
        k.known.init if (b := last[j.id].batch) is None else b.per_gpu
        for j, k in zip(jobs, known, strict=True)
    ]

    best = min(
        cost((a, b))
        for a in sizes_to_search(known[0].known.init)
        for b in sizes_to_search(known[1].known.init)
    )
    start = cost([k.known.init for k in known])
    assert cost(batches) - best < 0.25 * (start - best)


def test_sharing_and_tuning_beat_a_queue_and_sharing_alone() -> None:
    rng = np.random.default_rng(7)
    names = sorted(MODELS)
    work = []
    for i, at in enumerate(np.cumsum(rng.exponential(150.0, 80))):
        model = names[int(rng.integers(len(names)))]
        work.append((task(f"{model}-{i}", model, float(at)), float(rng.lognormal(7.0, 0.8))))
    submitted = np.array([job.submitted for job, _ in work])

    def outcome(policy: Fifo | IADeep) -> tuple[float, float]:
        ends = np.array(list(together(policy, work, "2x2:rtx3090", truth()).end.values()))
        return float((ends - submitted).mean()), float(ends.max())

    tuned, plain, queue = outcome(IADeep()), outcome(IADeep(tune=False)), outcome(Fifo())

    assert tuned[0] < plain[0] < queue[0]
    assert tuned[1] < min(plain[1], queue[1])


def test_settings_that_measure_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="must be positive"):
        IADeep(probes=0)


# ---- against an independent simulation


@pytest.mark.parametrize("seed", seeds(15))
def test_every_job_of_iadeep_ends_as_in_an_independent_simulation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = {name: float(rng.uniform(0.05, 0.9)) for name in "abcd"}
    at = np.cumsum(rng.integers(1, 200, size=30)).astype(float)
    jobs = [
        Arrival(
            f"j{i}",
            float(at[i]),
            float(rng.integers(100, 3000)),
            str(rng.choice(list(weight))),
            float(rng.choice([0.1, 0.4, 0.7])),
            float(rng.choice([2.0, 6.0, 10.0])),
        )
        for i in range(30)
    ]

    def by_model(models: list[str]) -> list[float]:
        others = [sum(weight[m] for m in models) - weight[own] for own in models]
        return [1.0 / (1.0 + weight[own] * rest) for own, rest in zip(models, others, strict=True)]

    def speeds(group: Sequence[Profile]) -> list[float]:
        return by_model([profile.tag for profile in group])

    work = [
        (
            Job(
                JobId(job.name),
                job.at,
                model=job.model,
                hints={"gpu_util": 100.0 * job.use, "gmem_mib": 1024.0 * job.mem_gb},
            ),
            job.seconds,
        )
        for job in jobs
    ]
    policy = IADeep(tune=False, residents=3)
    done = together(policy, work, f"1x4:{KIND}", Colocated(profile_of, speeds))

    memory = parse_cluster(f"1x4:{KIND}").nodes[0].device_gb
    assert done.end == pytest.approx(simulate(jobs, 4, memory, 3, by_model))
