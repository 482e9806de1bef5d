"""Two-dimensional Gittins index: first the jobs most likely to end soon for the service they take.

Paper       Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI
            2019; Gittins, "Bandit processes and dynamic allocation indices", Journal of the
            Royal Statistical Society B 41(2), 1979.
Objective   mean completion time when only the distribution of service is known.
Needs       GPU-seconds of finished jobs; before there are `min_samples`, a log-normal prior.
Controls    which jobs run, and with `place` where. Sizes are left to the defaults.
Cost        O(n log n) for n active jobs, then O(log nodes) for each job that starts.
Deviations  attained service is rounded down to steps of one, two, four, ... `quantum`s, and the
            index is that of the service up to the next step; it is reviewed when a running
            job climbs one. `optimal=true` takes the supremum over all quanta. The prior has
            the median and spread of the GPU-times published with the authors' simulator.
            `predicted=true` reads each job's own distribution from the predictor instead.
"""

from __future__ import annotations

from functools import cache

from weft.core.plan.about import About, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.admit.starting import Preempt
from weft.pieces.order.attained import PRIOR_MEDIAN, PRIOR_SIGMA, GittinsIndex, PredictedIndex
from weft.pieces.parts import run_order
from weft.policies.baseline import add_place, find_place

WHERE = classify(Objective.COMPLETION_TIME, NeededKnowledge.PAST_JOBS, Preemption.STOPS)


@frozen
class Gittins:
    """Run the jobs with the highest index over the service of past jobs.

    With `predicted` it is the index of the predictor's distribution of each job. `place` chooses
    the devices: `weft list part` shows all places.
    """

    quantum: float = 3250.0
    optimal: bool = False
    min_samples: int = 100
    prior_median: float = PRIOR_MEDIAN
    prior_sigma: float = PRIOR_SIGMA
    place: str = "packed"
    predicted: bool = False

    def __post_init__(self) -> None:
        find_place("gittins", self.place)
        self._order()

    @property
    def about(self) -> About:
        """A place may need to know more."""
        return _about(self.place, predicted=self.predicted)

    def decide(self, view: View) -> Plan:
        """Rank by index, highest first, then pack; wake when a running job climbs a step."""
        return run_order(
            view, self._order(), Preempt(), find_place("gittins", self.place).placer(view)
        )

    def _order(self) -> GittinsIndex | PredictedIndex:
        if self.predicted:
            return PredictedIndex()
        return GittinsIndex(
            self.quantum, self.optimal, self.min_samples, self.prior_median, self.prior_sigma
        )


@cache
def _about(place: str, *, predicted: bool) -> About:
    starves = PredictedIndex.about.starves if predicted else "jobs beyond all past service"
    needs = Needs.REMAINING if predicted else Needs.HISTORY
    about = About("gittins", "Gu et al. 2019", needs, starves=starves, taxonomy=WHERE)
    return add_place(about, place)
