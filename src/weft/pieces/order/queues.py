"""Discretised queues: jobs sink as they attain service, and order inside a queue is kept.

The multi-level feedback queues of Tiresias (NSDI 2019): equal jobs are not time-sliced, so
far fewer are preempted than under continuous least attained service.
"""

from __future__ import annotations

import numpy as np

from weft.core.plan.view import View
from weft.core.state.table import Bools, Floats, Rows
from weft.frozen import frozen

EPS = 1e-6
EXISTING, ARRIVED, MOVED = 0.0, 1.0, 2.0


@frozen
class Standing:
    """Where each job stands, by submission number: what a policy remembers between decisions.

    `place` is its position in the last scan. `service0`, `ran0` and `wait0` are the meters at
    its last promotion; what counts is what came after.
    """

    seq: Floats
    queue: Floats
    place: Floats
    service0: Floats
    ran0: Floats
    wait0: Floats


@frozen
class Queues:
    """Thresholds of attained service, the rule inside a queue, and the starvation knob.

    `by_time` counts seconds executed instead of GPU-seconds. `sticky` keeps queues as lists,
    running jobs before waiting ones; otherwise the order is by first start. A waiting job
    of a later queue whose wait reaches `knob` times what it ran is promoted to the first.
    """

    thresholds: tuple[float, ...]
    by_time: bool = False
    sticky: bool = True
    knob: float = np.inf

    @property
    def promotes(self) -> bool:
        """Whether waiting alone can move a job."""
        return bool(np.isfinite(self.knob))

    def stand(self, view: View) -> Standing:
        """Every active job's queue and place now: arrivals, promotions and demotions included."""
        table, before = view.table, view.memory
        n = len(table)
        if not isinstance(before, Standing):
            before = Standing(*(np.zeros(0) for _ in range(6)))
        at = np.searchsorted(before.seq, table.seq)
        known = at < len(before.seq)
        known[known] = before.seq[at[known]] == table.seq[known]
        rows = at[known]

        def recall(past: Floats) -> Floats:
            column = np.zeros(n)
            column[known] = past[rows]
            return column

        queue, place = recall(before.queue), recall(before.place)
        service0 = ran0 = wait0 = np.zeros(n)
        arrival = np.where(known, EXISTING, ARRIVED)
        if self.promotes:
            service0, ran0, wait0 = map(recall, (before.service0, before.ran0, before.wait0))
            sunk = np.maximum(queue, self._queue_of(self._attained(view, service0, ran0)))
            promoted = self._promote(view, sunk, service0, ran0, wait0)
            queue[promoted], arrival[promoted] = 0.0, MOVED
        attained = self._attained(view, service0, ran0)
        now_in = self._queue_of(attained)
        demoted = now_in > queue
        queue[demoted], arrival[demoted] = now_in[demoted], MOVED
        # Newcomers to a queue stand behind everyone else: arrivals, then moves as they happened.
        place = np.where(arrival > EXISTING, n * (1.0 + arrival) + len(before.seq), place)
        place[demoted] += self._sunk_for(view, attained, queue, demoted)
        return Standing(table.seq.copy(), queue, place, service0, ran0, wait0)

    def order(self, view: View, standing: Standing) -> Rows:
        """The scan: queue by queue, inside a queue by the rule."""
        inside = standing.place if self.sticky else view.table.started
        return view.ranked(standing.queue, inside)

    def remember(self, standing: Standing, order: Rows, running: Bools) -> Standing:
        """The lists after a pass: in each queue running jobs now precede waiting ones."""
        # Of small whole numbers, which numpy sorts in linear time.
        group = 2 * standing.queue[order].astype(np.int16) + ~running[order]
        order = order[np.argsort(group, kind="stable")]
        place = np.empty(len(order))
        place[order] = np.arange(len(order))
        return Standing(
            standing.seq, standing.queue, place, standing.service0, standing.ran0, standing.wait0
        )

    def next_change(self, view: View, standing: Standing, running: Bools) -> float | None:
        """When the next running job sinks, or the next waiting one is promoted."""
        times = [np.inf]
        limits = np.append(self.thresholds, np.inf)[standing.queue.astype(int)]
        sinking = running & np.isfinite(limits)
        if sinking.any():
            speed = 1.0 if self.by_time else view.table.need[sinking]
            attained = self._attained(view, standing.service0, standing.ran0)[sinking]
            times.append(float(((limits[sinking] - attained) / speed).min()))
        if self.promotes:
            ran = view.ran() - standing.ran0
            due = self.knob * ran - (view.waited() - standing.wait0)
            rising = ~running & (ran > 0.0) & (standing.queue > 0.0)
            if rising.any():
                times.append(float(due[rising].min()))
        soonest = min(times)
        return None if soonest == np.inf else view.now + max(soonest, EPS)

    def _queue_of(self, attained: Floats) -> Rows:
        return np.searchsorted(self.thresholds, attained + EPS, side="right")

    def _attained(self, view: View, service0: Floats, ran0: Floats) -> Floats:
        return view.ran() - ran0 if self.by_time else view.service() - service0

    def _sunk_for(self, view: View, attained: Floats, queue: Floats, rows: Bools) -> Floats:
        """Minus the seconds since each of `rows` came into its queue, squeezed into (-1, 0]."""
        limits = np.array([0.0, *self.thresholds])[queue[rows].astype(int)]
        speed = 1.0 if self.by_time else view.table.need[rows]
        since = np.maximum(attained[rows] - limits, 0.0) / speed
        squeezed: Floats = -since / (1.0 + since)
        return squeezed

    def _promote(
        self, view: View, queue: Floats, service0: Floats, ran0: Floats, wait0: Floats
    ) -> Bools:
        ran, waited = view.ran(), view.waited()
        fresh = ran - ran0 <= 0.0
        wait0[fresh] = waited[fresh]
        starved = waited - wait0 >= self.knob * (ran - ran0) - EPS
        promoted: Bools = view.waiting() & (queue > 0.0) & ~fresh & starved
        service0[promoted] = view.service()[promoted]
        ran0[promoted], wait0[promoted] = ran[promoted], waited[promoted]
        return promoted
