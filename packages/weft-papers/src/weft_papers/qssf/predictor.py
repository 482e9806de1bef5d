"""QSSF's estimate (Hu et al., "Characterization and Prediction ...", SC 2021).

A job is like those with the two closest names, at least 0.6 alike (`difflib`): the mean of this
user's jobs of the same name and GPUs, else of that name, else of all jobs', else of the user's
jobs, else of all. A tenth of this and nine tenths of what a model says are merged. The model, in
the paper LightGBM's, is a sum of trees over user, tenant, name, GPUs and submission time; it is
fitted again every month to jobs that had ended by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Any

from weft.core.events.job_end import Ended
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.predict.past_ends import Encoding, FittedToEnds, gpus_of, words_of
from weft_papers.qssf.boosted import Trees, fit_trees

LEAST_ALIKE = 0.6
CANDIDATES = 2
MOST_NAMES = 2_000
OWN_PART = 0.1


def merge(rolling: float, model: float, own_part: float = OWN_PART) -> float:
    """The published blend of both estimates; a model that says 0 or less is not heard."""
    return rolling if model <= 0.0 else own_part * rolling + (1.0 - own_part) * model


def similar_names(name: str, known: Iterable[str]) -> list[str]:
    """The two known names that are closest, best first."""
    return get_close_matches(name, list(known), CANDIDATES, LEAST_ALIKE)


@dataclass
class QssfPredictor(FittedToEnds):
    """The mean length of a user's jobs with similar names and a model's, made once per job.

    `refresh` makes it again after every end. A job's name is its own, else its model's or app's.
    `model` takes part from the first 100 ends on; it is fitted to the last 3,000, again every
    `refresh_days` days.
    """

    refresh: bool = False
    model: bool = True
    refresh_days: float = 30.0

    label = "qssf"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._model: tuple[Encoding, Trees] | None = None
        self._ends: dict[tuple[str, str, str], list[float]] = {}  # user, name, gpus: count, sum
        self._names: dict[str, None] = {}

    @property
    def keeps_estimates(self) -> bool:
        """Return true, as published, unless estimates are refreshed."""
        return not self.refresh

    def estimate(self, job: Job) -> float:
        """A tenth of the rolling estimate, nine tenths of the model's."""
        rolling = self.rolling(job)
        if self._model is None:
            return rolling
        encoding, trees = self._model
        row = encoding.row(words_of(job), gpus_of(job), job.submitted)
        return merge(rolling, trees.predict(row))

    def rolling(self, job: Job) -> float:
        """Mean length of jobs with the closest names, else of the user's, else of all."""
        name, gpus = words_of(job)[2], f"{gpus_of(job):g}"
        matches = [name] if name in self._names else similar_names(name, self._names)
        for user in (job.owner, None):
            for size in (gpus, None) if user is not None else (None,):
                mean = self._mean(user, matches, size)
                if mean < inf:
                    return mean
        mine = self._mean(job.owner, None, None)
        return mine if mine < inf else self._mean(None, None, None)

    def _mean(self, user: str | None, names: list[str] | None, gpus: str | None) -> float:
        count = total = 0.0
        for (who, name, size), (ends, seconds) in self._ends.items():
            if user in (None, who) and (names is None or name in names) and gpus in (None, size):
                count, total = count + ends, total + seconds
        return total / count if count else inf

    def note_end(self, ended: Ended) -> None:
        """Ends are known at once; to the model when it is fitted again."""
        if self.model and self._past.add(ended.job, ended.length, ended.at):
            self._note_due()
        name = words_of(ended.job)[2]
        self._names.pop(name, None)
        self._names[name] = None
        if len(self._names) > MOST_NAMES:
            gone = next(iter(self._names))
            del self._names[gone]
            self._ends = {key: ends for key, ends in self._ends.items() if key[1] != gone}
        ends = self._ends.setdefault((ended.job.owner, name, f"{gpus_of(ended.job):g}"), [0.0, 0.0])
        ends[0] += 1.0
        ends[1] += ended.length

    @property
    def _fitter(self) -> Callable[[Floats, Floats], Trees]:
        return fit_trees

    def _use(self, model: Any) -> None:
        self._model = Encoding.load(model["encoding"]), Trees.load(model["model"])

    def save(self) -> Any:
        """Counts and sums by user, name and GPUs, the names in their order, and ends to fit to."""
        return {
            "ends": [[*key, *ends] for key, ends in self._ends.items()],
            "names": [*self._names],
            "past": self._past.save(),
            "fit": self.save_fit(),
        }

    def load(self, saved: Any) -> None:
        self._ends = {(a, b, c): [float(n), float(s)] for a, b, c, n, s in saved["ends"]}
        self._names = dict.fromkeys(saved["names"])
        if "past" in saved:
            self._past.load(saved["past"])
            self.load_fit(saved.get("fit"))
