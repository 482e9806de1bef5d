"""A wrapper that has nothing to do changes nothing, whatever the policy and the simulation."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from tests.examples import is_thorough, some

from weft.app.simulate.api import simulate
from weft.app.simulate.run import prepare
from weft.app.simulate.setup import Setup
from weft.app.simulate.world import SHARED
from weft.core.model.trace import Trace
from weft.core.plan.policy import Policy
from weft.core.spec.registry import build, names
from weft.sim.result import Outcome
from weft.stack.layers import Backoff
from weft_papers.published import CLASSES, build_named, find_authors_class

# Searches of real length are no use on small workloads.
SHORTER = {
    "pollux": "generations=2,population=6,interval=1800",
    "slaq": "epoch=120",
    "shockwave": "window=4,round=1800",
}
WRAPPERS = (
    "cassini",
    "quota",
    "lend",
    "reserve",
    "priority",
    "no_preempt",
    "fair:bound=none",
    "hived",
    "easy",
    "gfs",
)
# Self-tuning jobs, measured throughputs, layers and servers, losses, jobs that share devices.
WORKLOADS = {
    "tiny-20": ("", None),
    "pollux": ("4x4:t4+2x8:a100", 6),
    "gavel": ("2x4:v100+1x4:k80", 4),
    "servers": ("2x4:v100", 6),
    "losses": ("2x4:v100", 3),
    "colocated": ("", 8),
}
OTHERS = [name for name in WORKLOADS if name != "tiny-20"]


def specs() -> list[str]:
    """Every policy, and what it is called as its authors have it where it has such a variant."""
    own = [f"{name}:{SHORTER[name]}" if name in SHORTER else name for name in names("policy")]
    theirs = [spec for spec in own if spec.partition(":")[0] in CLASSES]
    return [*own, *(f"authors/{spec}" for spec in theirs if is_thorough())]


@cache
def workload(name: str) -> Trace:
    """Jobs of one priority that never fail: nobody to put first, nothing to wait for."""
    cluster, jobs = WORKLOADS[name]
    trace, _ = prepare(Setup(name, "fifo", cluster, jobs=jobs, seed=1))
    plain = ((replace(job, priority=0.0), replace(truth, failures=())) for job, truth in trace)
    return replace(trace, jobs=tuple(plain))


def run(name: str, policy: str | Policy) -> str:
    """Everything of an outcome but how long it took to compute, to the last digit."""
    trace = workload(name)
    result = simulate(trace, policy, WORKLOADS[name][0] or trace.cluster, seed=1)
    outcome: Outcome = next(iter(result.outcomes.values()))[0]
    jobs = outcome.per_job
    exact = [column.tolist() for column in (jobs.start_s, jobs.end_s, jobs.restarts, jobs.gpu_s)]
    return repr((outcome.as_dict(per_job=True, timing=False), exact))


@pytest.mark.parametrize(("turn", "spec"), [*enumerate(specs())])
def test_a_wrapper_with_nothing_to_do_gives_the_same_result(turn: int, spec: str) -> None:
    policy = build_named(spec)
    bare = run("tiny-20", find_authors_class(spec))

    tried = some(WRAPPERS, turn, 3)
    wrapped = {name: run("tiny-20", build("wrapper", name, inner=policy)) for name in tried}
    wrapped["backoff"] = run("tiny-20", Backoff(policy))

    assert wrapped == dict.fromkeys(wrapped, bare)


def pairs() -> list[tuple[str, str]]:
    """Policies and workloads; how jobs with layers or losses share devices is not known."""
    detailed = {name for name in OTHERS if workload(name).detail}
    sharing = {spec for spec in specs() if build_named(spec).about.controls & SHARED}
    turns = enumerate(specs())
    every = [(spec, name) for turn, spec in turns for name in some(OTHERS, turn, 2)]
    return [(spec, name) for spec, name in every if spec not in sharing or name not in detailed]


@pytest.mark.parametrize(("spec", "name"), pairs())
def test_all_wrappers_together_change_nothing_in_any_simulation(spec: str, name: str) -> None:
    policy = build_named(spec)
    bare = run(name, find_authors_class(spec))

    for wrapper in reversed(WRAPPERS):
        policy = build("wrapper", wrapper, inner=policy)
    wrapped = run(name, Backoff(policy))

    assert wrapped == bare
