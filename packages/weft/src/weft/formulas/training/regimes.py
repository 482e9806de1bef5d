"""Jobs that train in regimes: their batch size, and with it their speed, changes on the way.

How many epochs there are and how long one takes in each regime travel as hints of the job:
`epochs`, and `regime0_batch`, `regime0_epoch_s`, `regime1_batch` and so on. When which regime
comes is not declared: it is seen while the job trains, and the rest is predicted by the Dirichlet
posterior of Shockwave (Zheng et al., NSDI 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from weft.core.errors import InvalidConfig
from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.model.job import Job
from weft.frozen import frozen

Runs = Sequence[tuple[int, int]]  # batch size and epochs, in order
LEAST_S = 1.0  # what a job whose epochs are over is said to need


@frozen
class Regimes:
    """A job's declaration: its epochs, and seconds of one by batch size on what it asked for.

    `samples` are those of an epoch, 0 where unknown.
    """

    epochs: int
    epoch_s: Mapping[int, float]
    samples: float = 0.0

    def hints(self) -> dict[str, float]:
        """The regimes as hints of a job."""
        hints = {"epochs": float(self.epochs)}
        if self.samples > 0.0:
            hints["epoch_samples"] = self.samples
        for i, (batch, seconds) in enumerate(self.epoch_s.items()):
            hints[f"regime{i}_batch"], hints[f"regime{i}_epoch_s"] = float(batch), seconds
        return hints

    def seconds(self, runs: Runs) -> float:
        """Seconds of epochs run in these regimes."""
        return sum(epochs * self.epoch_s[batch] for batch, epochs in runs)


def regimes_of(job: Job) -> Regimes | None:
    """The regimes that a job declares; None of a job that declares none."""
    hints = job.hints
    if "regime0_batch" not in hints:
        return None
    epochs = hints.get("epochs", 0.0)
    seconds: dict[int, float] = {}
    for i in count():
        batch = hints.get(f"regime{i}_batch")
        if batch is None:
            break
        took = hints.get(f"regime{i}_epoch_s", 0.0)
        if took <= 0.0 or batch < 1.0:
            raise InvalidConfig(
                f"job {job.id!r}: regime {i} has batch {batch:g} and epochs of {took:g} s",
                hint=f"give it positive hints regime{i}_batch and regime{i}_epoch_s",
            )
        seconds[int(batch)] = took
    if epochs < 1.0:
        raise InvalidConfig(
            f"job {job.id!r}: {epochs:g} epochs",
            hint="a job with regimes has a hint epochs, 1 or more",
        )
    return Regimes(int(epochs), seconds, hints.get("epoch_samples", 0.0))


def predict_remaining(declared: Regimes, seen: EpochsSoFar) -> float:
    """Seconds left on what was asked for: the posterior mean of epochs in each regime.

    Before anything is seen every regime is as likely as any other. Epochs seen take their part of
    all of them, those over are subtracted, and what remains is scaled to the epochs left.
    """
    left = declared.epochs - seen.over
    if left <= 0:
        return LEAST_S
    likely = expect_epochs(declared, seen.begun)
    # The authors round up what the posterior expects, so that one epoch too few is left.
    inflated = max(int(sum(likely.values()) + 1.0), left)
    total = sum(epochs * declared.epoch_s[batch] for batch, epochs in likely.items())
    return total * seen.slower * left / inflated


def expect_epochs(declared: Regimes, begun: Mapping[int, int]) -> dict[int, float]:
    """Epochs still expected in each regime after some have begun."""
    prior = declared.epochs / len(declared.epoch_s)
    weight = {batch: prior + begun.get(batch, 0) for batch in declared.epoch_s}
    scale = declared.epochs / sum(weight.values())
    return {batch: _subtract(w * scale, begun.get(batch, 0)) for batch, w in weight.items()}


def past_seconds(declared: Regimes, seen: EpochsSoFar) -> float:
    """Seconds that the epochs which are over took on what was asked for."""
    total = sum(declared.epoch_s.get(batch, 0.0) * n for batch, n in seen.begun.items())
    if sum(seen.begun.values()) > seen.over:
        total -= declared.epoch_s.get(seen.batch, 0.0)
    return total * seen.slower


def mean_epoch_s(declared: Regimes, seen: EpochsSoFar) -> float:
    """Mean seconds of the epochs that have begun; of all regimes before any has."""
    begun = {b: n for b, n in seen.begun.items() if b in declared.epoch_s}
    if not begun:
        return sum(declared.epoch_s.values()) / len(declared.epoch_s) * seen.slower
    total = sum(declared.epoch_s[batch] * n for batch, n in begun.items())
    return total / sum(begun.values()) * seen.slower


def _subtract(expected: float, begun: int) -> float:
    """One for each epoch that has begun, while there is a whole one to take."""
    return expected - min(begun, int(expected))
