"""The log of a service whose users submit the same things again and again, to predict from.

No public trace has commands. Two of three jobs here belong to a group (one user's command with
other numbers) whose lengths differ by a quarter; one group in twenty takes four times as long from
the middle on, in one of ten the jobs fail in rows; the others are commands that come once. Group
medians are spread as Venus' lengths are. Half an hour apart on average, nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.core.codec.event_lines import event_line
from weft.core.events.event import Decided, Event, Failed, Finished, Started, Submitted
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch

MEDIAN_S, SPREAD, WITHIN = 480.0, 2.3, 0.25
RECURRING, GROUP, GAP_S = 0.65, 12, 1_800.0
DRIFTS, FAILS, GOES_ON_FAILING = 0.05, 0.1, 0.75


def write_log(path: Path, jobs: int, seed: int) -> None:
    """Events of so many jobs, in order."""
    events = sorted(_lives(jobs, np.random.default_rng(seed)), key=lambda timed: timed[0])
    path.write_text("".join(f"{event_line(at, event)}\n" for at, event in events))


def _lives(jobs: int, rng: np.random.Generator) -> Iterator[tuple[float, Event]]:
    groups = max(round(jobs * RECURRING / GROUP), 1)
    medians = MEDIAN_S * rng.lognormal(0.0, SPREAD, groups)
    sizes = 2 ** rng.integers(0, 4, groups)
    drifts, fails = rng.random(groups) < DRIFTS, rng.random(groups) < FAILS
    failing = np.zeros(groups, dtype=bool)
    at = 0.0
    for i in range(jobs):
        at += float(rng.exponential(GAP_S))
        group = int(rng.integers(groups))
        if rng.random() < RECURRING:
            later = 4.0 if drifts[group] and 2 * i > jobs else 1.0
            length = medians[group] * later * rng.lognormal(0.0, WITHIN)
            stays = GOES_ON_FAILING if failing[group] else 1.0 - GOES_ON_FAILING
            failing[group] = fails[group] and rng.random() < stays
            script, bad = f"train{group}.py", bool(failing[group])
        else:
            length, script, bad = MEDIAN_S * rng.lognormal(0.0, SPREAD), f"once{i}.py", False
        command = ("python", script, "--seed", str(i))
        gpus = int(sizes[group])
        yield from _life(f"j{i}", at, f"u{group % 40}", command, gpus, float(length), bad)


def _life(
    name: str, at: float, user: str, command: tuple[str, ...], gpus: int, length: float, bad: bool
) -> Iterator[tuple[float, Event]]:
    job = Job(JobId(name), at, Demand(gpus), tenant="lab", user=user, launch=Launch(command))
    on = Allocation((Slice(NodeId("n0"), tuple(range(gpus))),))
    yield at, Submitted(job)
    yield at, Decided(1, {job.id: on})
    yield at, Started(job.id, 1)
    end = at + max(length, 1.0)
    yield end, Failed(job.id, 1, "") if bad else Finished(job.id, 1)
