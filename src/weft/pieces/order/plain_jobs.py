"""Jobs of one size: what is left of them, and what that makes them weigh.

With all GPUs in use, one more second of a job on `g` GPUs delays all jobs behind it: the fewest
GPU-seconds left go first, and a second of a job is worth its GPUs times its rank from the last.
"""

from __future__ import annotations

import numpy as np

from weft.core.plan.view import View
from weft.core.state.cells import Column, Floats
from weft.core.state.table import Bools

LATE = 3.0  # times what a job ran on its part of the cluster that it may wait
BEGUN_S = 10.0  # a job that ran for less is taken to have run for this long
STARTS = 2.0  # times that a start counts for a waiting job: it is lost, and another stops for it


def find_plain(view: View) -> Bools:
    """Rows of jobs that run on one number of GPUs, by one execution plan."""
    table = view.table
    mask: Bools = table.column(Column.MIN) == table.column(Column.MAX)
    if view.knowledge.plans is not None:
        mask &= [not job.plans for job in table.jobs]
    return mask


def charged_service(view: View, left: Floats, costs: Floats) -> Floats:
    """GPU-seconds left of each row; waiting jobs also have to start.

    `costs` are first starts and restarts, each of rows x kinds; the dearest kind counts.
    """
    young = view.table.column(Column.REPORTED) == 0.0
    start = np.where(young, costs[0].max(axis=1), costs[1].max(axis=1))
    seconds = left + np.where(view.running(), 0.0, STARTS * start)
    service: Floats = seconds * view.table.need
    return service


def find_patience(view: View) -> Floats:
    """Seconds that each row may wait; one that has waited for longer goes before others.

    They are by what it has run, which takes longer on an equal part of the cluster if the gang is
    larger than its part. A late job that runs stays late until it has run for twice as long.
    """
    ran = np.maximum(view.ran(), BEGUN_S) * np.where(view.running(), 0.5, 1.0)
    part = view.cluster.gpus / max(len(view.table), 1)
    patience: Floats = LATE * ran * np.maximum(view.table.need / part, 1.0)
    return patience


def plain_weights(view: View, weights: Floats, service: Floats, plain: Bools) -> Floats:
    """The weights, where those of `plain` rows go by GPUs times rank of `service` among them.

    Jobs with as much left have the same rank. Their sum stays: how they fare against elastic jobs
    is not decided here.
    """
    _, where, count = np.unique(-service[plain], return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - 0.5 * (count - 1.0))[where]
    worth = np.maximum(view.table.need[plain], 1e-9) * rank
    changed = weights.copy()
    changed[plain] = worth * (weights[plain].sum() / max(worth.sum(), 1e-12))
    return changed
