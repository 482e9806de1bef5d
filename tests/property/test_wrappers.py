"""A wrapper that has nothing to do changes nothing, whatever the policy and the simulation."""

from __future__ import annotations

from dataclasses import fields

import pytest

from weft.app.simulate.api import simulate
from weft.core.policy import Policy
from weft.core.registry import build, find, names
from weft.runtime.backoff import Backoff
from weft.sim.result import Outcome

# Searches of real length are no use on small workloads.
SHORTER = {"pollux": "generations=4,population=8"}
BY_SCIPY = {"allox"}  # an extra
WRAPPERS = ("firm", "priority", "quota")
# Recorded durations, self-tuning jobs, measured throughputs, layers and servers, losses, sharing.
WORKLOADS = {
    "tiny-20": ("", 8),
    "pollux": ("4x4:t4+2x8:a100", 6),
    "gavel": ("2x4:v100+1x4:k80", 8),
    "servers": ("2x4:v100", 6),
    "losses": ("2x4:v100", 6),
    "colocated": ("", 8),
}


def specs() -> list[str]:
    """Every policy, and what it is called as its authors have it where it has such a variant."""
    found = []
    for name in names("policy"):
        own = [SHORTER[name]] if name in SHORTER else []
        found.append(":".join([name, *own]))
        if any(f.name == "artifact" for f in fields(find("policy", name))):
            found.append(f"{name}:" + ",".join([*own, "artifact=true"]))
    return found


def told(outcome: Outcome) -> str:
    """Everything of an outcome but how long it took to compute, to the last digit."""
    jobs = outcome.per_job
    exact = [column.tolist() for column in (jobs.start_s, jobs.end_s, jobs.restarts, jobs.gpu_s)]
    return repr((outcome.as_dict(per_job=True, timing=False), exact))


def run(workload: str, policy: str | Policy) -> str:
    cluster, jobs = WORKLOADS[workload]
    result = simulate(workload, policy, cluster, jobs=jobs, seed=1)
    return told(next(iter(result.outcomes.values()))[0])


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("spec", specs())
def test_a_wrapper_with_nothing_to_do_gives_the_same_result(spec: str, workload: str) -> None:
    if spec in BY_SCIPY:
        pytest.importorskip("scipy")
    bare = run(workload, spec)

    wrapped = {name: run(workload, f"{name}|{spec}") for name in WRAPPERS}
    wrapped["backoff"] = run(workload, Backoff(build("policy", spec)))

    assert wrapped == dict.fromkeys(wrapped, bare)
