"""What a report reads of a simulation's result; `weft.sim.result.Result` has this shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from weft.core.state.table import Floats


class PerJobLike(Protocol):
    """One row a job; times in seconds, NaN where it never happened."""

    @property
    def id(self) -> Sequence[str]:
        """Names of the jobs, in order of submission."""
        ...

    @property
    def submit_s(self) -> Floats:
        """When each job was submitted."""
        ...

    @property
    def end_s(self) -> Floats:
        """When each job finished."""
        ...

    @property
    def gpus(self) -> Floats:
        """GPUs each job asked for."""
        ...

    @property
    def ftf(self) -> Floats:
        """Finish-time fairness of each job."""
        ...


class SeriesLike(Protocol):
    """The cluster over time."""

    @property
    def time_s(self) -> Floats:
        """Evenly spaced instants."""
        ...

    @property
    def waiting(self) -> Floats:
        """Jobs waiting."""
        ...

    @property
    def used(self) -> Floats:
        """GPUs in use."""
        ...


class UserShareLike(Protocol):
    """GPUs of one user over time."""

    @property
    def user(self) -> str:
        """Whose jobs they were; empty where nobody was named."""
        ...

    @property
    def weight(self) -> float:
        """What its entitlement is in proportion to."""
        ...

    @property
    def time_s(self) -> Floats:
        """Evenly spaced instants."""
        ...

    @property
    def entitled(self) -> Floats:
        """GPUs it was entitled to, given what its jobs could use."""
        ...

    @property
    def received(self) -> Floats:
        """GPUs its jobs held."""
        ...


class BarLike(Protocol):
    """One job on one GPU for a while."""

    @property
    def node(self) -> str:
        """The machine."""
        ...

    @property
    def gpu(self) -> int:
        """The device, by its number on the machine."""
        ...

    @property
    def job(self) -> str:
        """Who held it."""
        ...

    @property
    def start_s(self) -> float:
        """From when."""
        ...

    @property
    def end_s(self) -> float:
        """Until when."""
        ...


class OutcomeLike(Protocol):
    """How one policy did under one seed."""

    @property
    def predictor(self) -> str:
        """Who predicted remaining times for the policy."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Numbers by the names of the result contract."""
        ...

    @property
    def decide_ms(self) -> Mapping[str, float | None]:
        """Milliseconds a decision took, by percentile."""
        ...

    @property
    def per_job(self) -> PerJobLike:
        """What became of each job."""
        ...

    @property
    def series(self) -> SeriesLike:
        """The cluster over time."""
        ...

    @property
    def timeline(self) -> Sequence[BarLike]:
        """Who held which GPU when; empty for runs too large to look at."""
        ...

    @property
    def shares(self) -> Sequence[UserShareLike]:
        """The users that wanted most, the largest first."""
        ...


Outcomes = Mapping[str, Sequence[OutcomeLike]]


class ResultLike(Protocol):
    """Policies on one workload and cluster, one outcome a seed each."""

    @property
    def weft(self) -> str:
        """The version that ran."""
        ...

    @property
    def workload(self) -> str:
        """The jobs."""
        ...

    @property
    def cluster(self) -> str:
        """The machines."""
        ...

    @property
    def seeds(self) -> Sequence[int]:
        """Seeds that were run."""
        ...

    @property
    def outcomes(self) -> Outcomes:
        """By policy, in the order to show them."""
        ...

    @property
    def facts(self) -> Mapping[str, float]:
        """What else is known, such as `gpus` and `offered_load`."""
        ...
