"""How long a job may still run and whether it may fail, in words, from what is predicted of it."""

from __future__ import annotations

import re
from math import isfinite

from weft.core.knowledge.predictor import Predictor
from weft.core.model.job import Job, JobId
from weft.core.plan.reasons import GPU
from weft.core.state.table import Table

FEWEST = 2.0  # ends worth: below that there is no estimate to speak of
SCORED = 20
LIKELY, STREAK = 0.6, 3
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def describe_length(
    predictor: Predictor | None, table: Table, job: JobId, now: float, device: str = GPU
) -> str:
    """Such as "about 40 min (10 min to 3 h), from your last 6 runs of train.py with 4 GPUs".

    With how often such ranges were right, once enough were scored; empty where unknown.
    `device` is what devices are called: CPU slots where there are no GPUs.
    """
    if predictor is None:
        return ""
    row = table.row(job)
    basis = predictor.basis(table.jobs[row])
    if not basis.level or basis.effective < min(FEWEST, basis.count):
        return ""
    keep = table.seq == table.seq[row]
    low, middle, high = predictor.ranges(table.pick(keep), now)[0].tolist()
    if not isfinite(high):
        return ""
    scores = predictor.scores()
    right = f"; {scores.coverage:.0%} of such ranges were right".replace("%", " %")
    from_what = _of_devices(basis.level, device)
    text = f"about {in_words(middle)} ({in_words(low)} to {in_words(high)}), from {from_what}"
    return text + (right if scores.count >= SCORED else "")


def warn_of_failure(predictor: Predictor | None, job: Job, device: str = GPU) -> str:
    """That a job will probably fail as its like did; empty where that is not likely."""
    if predictor is None:
        return ""
    risk = predictor.risk(job)
    if risk.p_fail < LIKELY or risk.streak < STREAK:
        return ""
    trial = f"; try it on one {device} first" if job.demand.gpus > 8 else ""
    after = f"after {in_words(risk.after_s)} on average"
    which = "all" if risk.streak >= risk.count else f"the newest {risk.streak}"
    return f"likely to fail: {which} of {_of_devices(risk.key, device)} failed, {after}{trial}"


def _of_devices(words: str, device: str) -> str:
    """What predictors say about earlier jobs, whose devices they call GPUs."""
    return re.sub(r"\bwith (\S+) GPU(s?)$", rf"with \1 {device}\2", words)


def in_words(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min, 3 h, 5 days."""
    if seconds < 2.0 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2.0 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2.0 * DAY:
        return f"{seconds / HOUR:.0f} h"
    return f"{seconds / DAY:.0f} days"
