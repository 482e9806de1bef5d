"""Two policies as Shockwave's repository has them, in Gavel's rounds: equal parts, and AlloX.

The repository calls equal parts of the cluster Gandiva_fair. Its AlloX matches whoever has no
machine of its own yet whenever shares are computed; a gang gets its part of one machine's time and
is matched again each time. Our own `gandiva_fair` and `allox` follow their papers instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.plan.view import View
from weft.solve.scipy_optimize import scipy_optimize
from weft_papers.gavel.accounts import UnitAccounts
from weft_papers.gavel.authors import AuthorsGavel
from weft_papers.gavel.problem import AllocationProblem, Solution

LARGE = 2_000_000  # cells of a matching
ALPHA = 0.2  # of the jobs without a machine, those who came first, take part


@dataclass(frozen=True)
class EqualParts(AuthorsGavel):
    """Gavel with an equal part of the cluster for every job, whatever its gang."""

    def _find_shares(self, problem: AllocationProblem, view: View, book: UnitAccounts) -> Solution:  # noqa: ARG002
        part = min(float(problem.gpus.sum()) / len(problem), 1.0)
        return Solution(part, np.full((len(problem), 1), part), np.zeros((0, 1)))


@dataclass(frozen=True)
class MatchedLines(AuthorsGavel):
    """The heads of lines that minimise the sum of completion times."""

    def _find_shares(self, problem: AllocationProblem, view: View, book: UnitAccounts) -> Solution:
        before = {unit[0]: float(book.share[i, 0]) for i, unit in enumerate(book.units)}
        share = np.array([[before.get(str(job.id), 0.0)] for job in view.table.jobs])
        free = np.flatnonzero(share[:, 0] != 1.0)
        machines = int(problem.gpus[0]) - (len(share) - len(free))
        free = free[np.argsort(-problem.elapsed[free], kind="stable")]
        free = free[: max(int(ALPHA * len(free)), machines)]
        if len(free) and machines > 0:
            seconds = problem.steps[free] / problem.rates[free, 0]
            # Lines are never longer than that; large problems are spared the rest.
            longest = -(-len(free) // machines) if len(free) ** 2 * machines > LARGE else len(free)
            places = np.repeat(np.arange(1, longest + 1), machines)
            # Of machines that are alike the solver's own order decides who is at the head.
            rows, columns = scipy_optimize().linear_sum_assignment(
                seconds[:, None] * places[None, :] + problem.elapsed[free][:, None]
            )
            head: dict[int, tuple[int, int]] = {}
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
                place, machine = divmod(column, machines)
                head[machine] = max(head.get(machine, (-1, 0)), (place, row))
            for _, row in head.values():
                share[free[row], 0] = 1.0 / problem.gangs[free[row]]
        return Solution(0.0, share, np.zeros((0, 1)))
