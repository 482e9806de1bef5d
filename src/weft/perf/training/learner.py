"""What the scheduler learns of trainings: speeds by workers and servers, losses, and epochs."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from weft.core.events.report import Report
from weft.core.knowledge.knowledge import EpochsSoFar, LossSoFar
from weft.core.model.cluster import Cluster
from weft.core.model.job import Job, JobId
from weft.core.state.table import Floats
from weft.formulas.training.learning import Ratios
from weft.formulas.training.tasks import Tasks, tasks_of
from weft.perf.training.layers import Network, apart, even, network_of, ratio_form, speed
from weft.perf.training.loss import LEAST_POINTS, epochs_left
from weft.perf.training.loss_laws import Linear, Sublinear, fit_law
from weft.perf.training.reported import Loss, Smoothed, follow_epochs, follow_loss
from weft.perf.training.servers import (
    Asynchronous,
    Point,
    Synchronous,
    average,
    fit_asynchronous,
    fit_synchronous,
)

MOST_EPOCHS = 100_000  # whoever counts further is not believed
HISTORY = 60  # points; older ones weigh nothing any more
PROBES, LARGEST_PROBE = 8, 10
ANYWHERE = Cluster(())
LAWS = {law.__name__: law for law in (Sublinear, Linear)}
TOLD = (
    *("iterations", "losses", "epochs", "recent", "largest", "gpu_s", "steps"),
    *("reports", "fit_at"),
)


@dataclass(slots=True)
class Heard:
    """What one job has reported so far."""

    iterations: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)
    recent: float = 0.0
    largest: float = 0.0
    gpu_s: float = 0.0
    steps: float = 0.0
    speeds: dict[tuple[int, int], float] = field(default_factory=dict)
    law: Sublinear | Linear | None = None
    reports: int = 0
    fit_at: int = 1
    fitted: Synchronous | Asynchronous | None = None
    ratios: Ratios | None = None
    left: float = 0.0
    left_of: int = -1

    def take(self, loss: Loss) -> None:
        """One more loss; one of an iteration that was reported before changes nothing."""
        self.largest = max(self.largest, loss.largest)
        self.recent = loss.recent or self.recent
        self.gpu_s = self.gpu_s if loss.gpu_s is None else loss.gpu_s
        if self.iterations and loss.iteration <= self.iterations[-1]:
            return
        self.reports += 1
        self.iterations.append(loss.iteration)
        self.losses.append(loss.loss)
        del self.iterations[:-HISTORY], self.losses[:-HISTORY]
        more = min(int(loss.epoch) + 1, MOST_EPOCHS) - len(self.epochs)
        self.epochs += [loss.loss] * more


class Learner:
    """Beliefs of trainings on a cluster, simulated or real.

    Speeds are fitted to a few trial runs of each job, placed evenly on the fewest nodes; a speed
    that was measured since overrides the fit. A loss that scatters from batch to batch is smoothed
    first; one that a job follows itself, iteration by iteration, is taken as it is.
    """

    def __init__(self, cluster: Cluster = ANYWHERE) -> None:
        self._node_gpus = min((node.gpus for node in cluster.nodes), default=1)
        self._heard: dict[JobId, Heard] = {}
        self._smoothed: dict[JobId, Smoothed] = {}
        self._epochs: dict[JobId, EpochsSoFar] = {}

    def observe(self, job: Job, kind: str, report: Report) -> None:  # noqa: ARG002
        """Take in a speed, a count of updates, an epoch, a loss, or all of them."""
        if (epochs := follow_epochs(job, self._epochs.get(job.id), report)) is not None:
            self._epochs[job.id] = epochs
        heard = self._heard.setdefault(job.id, Heard())
        if report.updates_per_s is not None:
            at = int(report.servers or 0.0), int(report.workers or 0.0)
            heard.speeds[at] = report.updates_per_s
            heard.steps = max(heard.steps, report.steps or 0.0)
        if report.loss is None:
            return
        loss: Loss | None
        if report.iteration is not None:
            loss = follow_loss(report)
        else:
            loss = self._smoothed.setdefault(job.id, Smoothed()).take(report)
        if loss is not None:
            heard.take(loss)

    def forget(self, job: Job) -> None:
        """A job has left."""
        self._heard.pop(job.id, None)
        self._smoothed.pop(job.id, None)
        self._epochs.pop(job.id, None)

    def save(self) -> Any:
        """What running jobs have reported, and the laws of their losses."""
        heard = {
            job: {
                **{name: getattr(heard, name) for name in TOLD},
                "speeds": [[*at, speed] for at, speed in heard.speeds.items()],
                "law": heard.law and [type(heard.law).__name__, *astuple(heard.law)],
            }
            for job, heard in self._heard.items()
        }
        smoothed = {job: list(astuple(smoothed)) for job, smoothed in self._smoothed.items()}
        epochs = {
            job: [seen.over, list(seen.begun.items()), seen.batch, seen.slower]
            for job, seen in self._epochs.items()
        }
        return {"heard": heard, "smoothed": smoothed, "epochs": epochs}

    def load(self, saved: Any) -> None:
        """Take up what `save` gave."""
        for job, values in saved["smoothed"].items():
            self._smoothed[JobId(job)] = Smoothed(*values)
        for job, (over, begun, batch, slower) in saved.get("epochs", {}).items():
            counts = {int(size): int(n) for size, n in begun}
            self._epochs[JobId(job)] = EpochsSoFar(over, counts, batch, slower)
        for job, fields in saved["heard"].items():
            heard = Heard(**{name: fields[name] for name in TOLD})
            heard.speeds = {
                (servers, workers): speed for servers, workers, speed in fields["speeds"]
            }
            if fields["law"]:
                family, *numbers = fields["law"]
                heard.law = LAWS[family](*numbers)
            self._heard[JobId(job)] = heard

    def ratios(self, job: Job) -> Ratios | None:
        """By the layers, their overlap measured at what was asked for, no task beside another."""
        known = _known(job)
        if known is None:
            return None
        heard = self._heard.setdefault(job.id, Heard())
        if heard.ratios is None:
            tasks, network = known
            at = apart(max(job.demand.gpus, 1), tasks.servers)
            heard.ratios = ratio_form(network, tasks, at)
        return heard.ratios

    def step_seconds(self, job: Job, workers: int, servers: int) -> Floats | None:
        """By the fitted law; where a speed was measured, by that."""
        known = _known(job)
        if known is None:
            return None
        heard = self._heard.setdefault(job.id, Heard())
        if heard.fitted is None:
            heard.fitted = self._probed(job, *known)
        w, p = np.arange(1, workers + 1.0), np.arange(1, servers + 1.0)
        seconds = np.full((servers + 1, workers + 1), np.inf)
        seconds[1:, 1:] = 1.0 / heard.fitted.speed(p[:, None], w[None, :])
        for (p_, w_), measured in heard.speeds.items():
            if 0 < p_ <= servers and 0 < w_ <= workers and measured > 0.0:
                seconds[p_, w_] = 1.0 / measured
        return seconds

    def steps_left(self, job: Job) -> float | None:
        """By the loss where it was reported for a few epochs, else by what the job declares."""
        tasks, heard = tasks_of(job), self._heard.get(job.id)
        if tasks is None:
            return None
        if heard is None:
            return tasks.steps
        epochs = job.hints.get("epochs", 0.0)
        if len(heard.epochs) < LEAST_POINTS or epochs <= 0.0:
            return max(tasks.steps - heard.steps, 0.0)
        if heard.left_of != len(heard.epochs):
            heard.left, heard.left_of = epochs_left(heard.epochs), len(heard.epochs)
        return max(heard.left, 1.0) * tasks.steps / epochs

    def seconds_left(self, job: Job) -> float | None:
        """By the epochs that its loss still needs; None before three of them were seen.

        Of jobs that report their losses step by step: of others the time is asked by size.
        """
        smoothed, heard = self._smoothed.get(job.id), self._heard.get(job.id)
        if smoothed is None or heard is None or len(heard.epochs) <= LEAST_POINTS:
            return None
        if smoothed.epoch_steps <= 0.0 or smoothed.gpu_s <= 0.0:
            return None
        if heard.left_of != len(heard.epochs):
            # The epoch under way has begun only: its loss is that of its beginning.
            heard.left, heard.left_of = epochs_left(heard.epochs[:-1]), len(heard.epochs)
        return max(heard.left, 1.0) * smoothed.epoch_steps * smoothed.gpu_s / job.demand.gpus

    def learned(self, job: Job) -> LossSoFar | None:
        """The last report, and the law of all of them."""
        heard = self._heard.get(job.id)
        if heard is None or not heard.losses:
            return None
        if heard.reports >= heard.fit_at:
            # A law of many points hardly changes with one more: a tenth more is worth a fit.
            heard.fit_at = heard.reports + max(heard.reports // 10, 1)
            heard.law = fit_law(heard.iterations, heard.losses)
        return LossSoFar(
            heard.iterations[-1],
            heard.losses[-1],
            heard.largest,
            heard.recent,
            heard.gpu_s,
            heard.law,
        )

    def epochs(self, job: Job) -> EpochsSoFar | None:
        """As it reported them; None of a job that declares no regimes or has not reported."""
        return self._epochs.get(job.id)

    def _probed(self, job: Job, tasks: Tasks, network: Network) -> Synchronous | Asynchronous:
        """A law for the job, from trial runs of sizes drawn at random."""
        rng = np.random.default_rng(crc32(job.id.encode()))
        most = min(LARGEST_PROBE, max(job.demand.max, 3))
        sizes = {(1, 1), (2, 1), (1, 2), (2, 2), (most, most)}
        while len(sizes) < min(PROBES, most * most):
            sizes.add((int(rng.integers(1, most + 1)), int(rng.integers(1, most + 1))))
        points = average(
            Point(p, w, speed(network, tasks, even(w, p, self._node_gpus))) for p, w in sizes
        )
        if tasks.sync:
            return fit_synchronous(points, tasks.batch)
        return fit_asynchronous(points)


def _known(job: Job) -> tuple[Tasks, Network] | None:
    tasks = tasks_of(job)
    network = network_of(job) if tasks is not None else None
    return None if tasks is None or network is None else (tasks, network)
