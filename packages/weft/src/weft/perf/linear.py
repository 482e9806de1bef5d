"""Beliefs for jobs without measurements: speed in proportion to GPUs, on every kind alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.events.report import Report
from weft.core.knowledge.learning import NothingLearnt
from weft.core.model.job import Config, Job
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import JobTable, Rows
from weft.perf.restart import restart_s


class NoPairs:
    """Beliefs of jobs that were not measured beside each other."""

    __slots__ = ()

    def pairs(
        self,
        table: JobTable,  # noqa: ARG002 - of no rows
        kinds: Sequence[str],  # noqa: ARG002
        first: Rows,  # noqa: ARG002
        second: Rows,  # noqa: ARG002
    ) -> Floats | None:
        return None


class LinearBeliefs(NoPairs, NothingLearnt):
    """Beliefs about jobs of a plain trace, which its replay makes true."""

    def observe(self, job: Job, kind: str, report: Report) -> None:
        """Nothing to learn."""

    def forget(self, job: Job) -> None:
        """Nothing to forget."""

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """Speed 1 on whatever a row asked for."""
        return np.ones((len(table), len(kinds)))

    def units(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        return np.ones((len(table), len(kinds)))

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        """Return goodputs in proportion to GPUs."""
        return np.tile(np.array([float(c.gpus) for c in configs]), (len(table), 1))

    def blind_goodputs(
        self,
        table: JobTable,
        kinds: Sequence[str],  # noqa: ARG002 - the same on all
        nodes: Floats,  # noqa: ARG002 - wherever they are
        replicas: Floats,
    ) -> Floats:
        """Return the believed goodput by replicas: one per replica."""
        return np.tile(np.asarray(replicas, dtype=float), (len(table), 1))

    def most_run(self, table: JobTable) -> Floats:
        """As many as each row may have: there is nothing to find out."""
        return np.array(table.column(TableColumns.MAX))

    def restart_s(self, table: JobTable) -> Floats:
        models = [job.model for job in table.jobs]
        costs = {model: restart_s(model) for model in set(models)}
        return np.array([costs[model] for model in models])
