"""Lucid's estimate of lengths (Hu et al., "Lucid", ASPLOS 2023): an additive model.

Each feature adds its own curve, and the twenty pairs of features that tell most add a table each,
fitted in turn to what the others leave (GA2M, in the paper an Explainable Boosting Machine). It is
fitted again every week to jobs that had ended by then; the authors take all that were submitted. A
negative prediction counts as 1,000 s, as published. GPU use is not among the features: traces and
most services do not know it at submission.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from weft.core.events.job_end import Ended
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.predict.past_ends import Encoding, FittedToEnds, gpus_of, words_of
from weft_papers.qssf.boosted import Shapes, fit_shapes

NEGATIVE_S = 1_000.0


@dataclass
class LucidPredictor(FittedToEnds):
    """An additive model of user, tenant, name, GPUs and submission time, made once per job.

    It is fitted to the last 3,000 ends, first to 100 and then every `refresh_days` days.
    """

    refresh_days: float = 7.0

    label = "lucid"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._model: tuple[Encoding, Shapes] | None = None

    @property
    def keeps_estimates(self) -> bool:
        return True

    def estimate(self, job: Job) -> float:
        if self._model is None:
            return inf
        encoding, shapes = self._model
        seconds = shapes.predict(encoding.row(words_of(job), gpus_of(job), job.submitted))
        return seconds if seconds > 0.0 else NEGATIVE_S

    def note_end(self, ended: Ended) -> None:
        """One more end; a new model where that is due."""
        if self._past.add(ended.job, ended.length, ended.at):
            self._note_due()

    @property
    def _fitter(self) -> Callable[[Floats, Floats], Shapes]:
        return fit_shapes

    def _use(self, model: Any) -> None:
        self._model = Encoding.load(model["encoding"]), Shapes.load(model["model"])

    def save(self) -> Any:
        return {**self._past.save(), "fit": self.save_fit()}

    def load(self, saved: Any) -> None:
        self._past.load(saved)
        self.load_fit(saved.get("fit"))
