"""Calibrated parameters of the synthetic workloads, read once from the shipped JSON.

Fitted by us to the published distributions of Philly (Jeon et al., ATC'19), Helios (Hu et al.,
SC'21), Alibaba PAI (Weng et al., NSDI'22), Microsoft ITP (Gu et al., ASPLOS'23) and Acme (Hu et
al., NSDI'24).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.frozen import frozen

Floats = npt.NDArray[np.float64]

# Where a trace publishes no user data (our choice).
USERS, USER_SIGMA = 300, 1.8


@frozen
class ArrivalProcess:
    """Arrivals of jobs: a rate per hour with calendar, noise and bursts.

    `noise` and `memory` are the variance and the hourly correlation of the log rate; `burst` is
    the probability that one more job follows at once, `together` that its gap is zero, and
    `gap_s` the median gap otherwise.
    """

    hours: Floats
    weekdays: Floats
    noise: float
    memory: float
    burst: float
    together: float
    gap_s: float


@frozen
class Family:
    """Everything the generator knows about one trace."""

    sizes: Floats
    size_p: Floats
    bucket_upper: Floats
    bucket_offset: Floats
    states: tuple[str, ...]
    state_p: Floats
    state_offset: Floats
    duration_cdf: Floats
    duration_cap: float
    arrival: ArrivalProcess
    users: int
    user_sigma: float


@frozen
class JobType:
    """One class of Acme jobs: its share, the box of its GPU counts, its lengths."""

    name: str
    share: float
    gpu_box: tuple[float, ...]
    duration_cdf: Floats


@cache
def family(key: str) -> Family:
    """The parameters under `key` of the JSON."""
    raw = _raw()[key]
    pmf: Mapping[str, float] = raw["gpu_pmf_pct"]
    state = raw.get("state", {"names": ["completed"], "p": [1.0], "latent_offset": [0.0]})
    users = raw.get("users", {})
    return Family(
        sizes=np.array([float(size) for size in pmf]),
        size_p=_normal(list(pmf.values())),
        bucket_upper=np.array(raw["bucket_upper"]),
        bucket_offset=np.array(raw["bucket_offset"]),
        states=tuple(state["names"]),
        state_p=_normal(state["p"]),
        state_offset=np.array(state["latent_offset"]),
        duration_cdf=np.array(raw["duration_cdf"]),
        duration_cap=float(raw["duration_cap_s"]),
        arrival=_arrival(raw["arrival"]),
        users=int(users.get("n_users_inferred", USERS)),
        user_sigma=float(users.get("lognormal_sigma", USER_SIGMA)),
    )


@cache
def job_types(cluster: str) -> tuple[JobType, ...]:
    """The job types of an Acme cluster, `seren` or `kalos`."""
    raw = _raw()["acme_by_type"]
    return tuple(
        JobType(
            key.partition("/")[2].lower(),
            value["job_share_pct"] / 100,
            tuple(value["gpu_num_box_low_q1_med_q3_high"]),
            np.array(value["duration_cdf"]),
        )
        for key, value in raw.items()
        if key.startswith(f"{cluster}/")
    )


def _arrival(raw: Mapping[str, Any]) -> ArrivalProcess:
    return ArrivalProcess(
        hours=np.array(raw["hod"]),
        weekdays=np.array(raw["dow_mon0"]),
        noise=raw["log_rate_sigma2"],
        memory=raw["log_rate_rho_1h"],
        burst=raw["burst_continue_p"],
        together=raw["burst_gap_zero_p"],
        gap_s=raw["burst_gap_lognormal"]["median_s"],
    )


def _normal(weights: list[float]) -> Floats:
    array = np.array(weights, dtype=np.float64)
    total: Floats = array / array.sum()
    return total


@cache
def _raw() -> dict[str, Any]:
    text = (files("weft.traces") / "data" / "synthetic_params.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
