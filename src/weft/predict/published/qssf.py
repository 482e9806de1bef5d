"""The rolling estimate of QSSF (Hu et al., "Characterization and Prediction ...", SC 2021).

A job is like those with the two closest names, at least 0.6 alike (`difflib`): the mean of this
user's jobs of the same name and GPUs, else of that name, else of everybody's, else of the user's
jobs, else of all. The published estimate is merged with a model's, a tenth of this and nine tenths
of that (`merge`); without a model this is used alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from math import inf
from typing import Any

from weft.core.events.job_end import Ended
from weft.core.model.job import Job, name_of
from weft.predict.published.by_job import ByJob

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
class Qssf(ByJob):
    """The mean length of a user's jobs with similar names, made once per job as published.

    `refresh` makes it again after every end. A job's name is its own, else its model's or app's.
    """

    refresh: bool = False

    label = "qssf"

    def __post_init__(self) -> None:
        super().__init__()
        self._ends: dict[tuple[str, str, str], list[float]] = {}  # user, name, gpus: count, sum
        self._names: dict[str, None] = {}

    @property
    def keeps_estimates(self) -> bool:
        """As published, unless it is refreshed."""
        return not self.refresh

    def estimate(self, job: Job) -> float:
        """Mean length of jobs with the closest names, else of the user's, else of all."""
        name, gpus = _name(job), _gpus(job)
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
        """Ends are known at once."""
        name = _name(ended.job)
        self._names.pop(name, None)
        self._names[name] = None
        if len(self._names) > MOST_NAMES:
            gone = next(iter(self._names))
            del self._names[gone]
            self._ends = {key: ends for key, ends in self._ends.items() if key[1] != gone}
        ends = self._ends.setdefault((ended.job.owner, name, _gpus(ended.job)), [0.0, 0.0])
        ends[0] += 1.0
        ends[1] += ended.length

    def save(self) -> Any:
        """Counts and sums by user, name and GPUs, and the names in their order."""
        return {
            "ends": [[*key, *ends] for key, ends in self._ends.items()],
            "names": [*self._names],
        }

    def load(self, saved: Any) -> None:
        """Take up what `save` gave."""
        self._ends = {(a, b, c): [float(n), float(s)] for a, b, c, n, s in saved["ends"]}
        self._names = dict.fromkeys(saved["names"])


@lru_cache(4096)
def _plain(name: str) -> str:
    return name.casefold()


def _name(job: Job) -> str:
    named = job.launch.name if job.launch is not None else ""
    return _plain(named or job.model or job.app or ("" if job.launch is None else name_of(job)))


def _gpus(job: Job) -> str:
    return f"{job.demand.gpus * job.demand.share:g}"
