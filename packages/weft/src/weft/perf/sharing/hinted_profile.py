"""Use of a device by a job that has not run yet: its hints, or the worst."""

from __future__ import annotations

from weft.core.knowledge.profile import Profile
from weft.core.model.job import Job

STAGES = ("stage0_s", "stage1_s", "stage2_s", "stage3_s")
FEWEST = 2  # stages that say which one is the GPU's
MIB_PER_GB = 1024.0


def read_hinted(job: Job) -> Profile | None:
    """The profile that came with a job; None if none did.

    Hints are `iteration_s` with `stage0_s` and so on, `gpu_util` and `gmem_util` in percent, and
    `gmem_mib`, the peak of GPU memory.
    """
    hints = job.hints
    stages = tuple(hints[name] for name in STAGES if name in hints)
    if len(stages) < FEWEST:
        stages = ()
    if not stages and "gpu_util" not in hints:
        return None
    step = hints.get("iteration_s", sum(stages) or 1.0)
    busy = hints["gpu_util"] / 100.0 if "gpu_util" in hints else min(stages[-2] / step, 1.0)
    return Profile(
        step,
        stages,
        hints.get("gmem_mib", 0.0) / MIB_PER_GB,
        busy,
        hints.get("gmem_util", 100.0 * busy) / 100.0,
        job.model,
    )


def profile_of(job: Job) -> Profile:
    """Return a job's own profile, or one that keeps its device busy all the time."""
    known = read_hinted(job)
    return Profile(tag=job.model) if known is None else known
