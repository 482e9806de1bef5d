"""Loaders and generators against the public research data, where it is at hand."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from weft.core.model.trace import Trace
from weft.traces.draw.recipe import DrawSettings
from weft.traces.options import Options
from weft.traces.read import load
from weft.traces.synthetic.calibrated import draw

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    ("path", "jobs", "gpu_hours"),
    [
        ("traces/normalized/openb_v2023.csv.gz", 7_063, None),
        ("traces/microsoft-itp-elasticflow/itp_raw_traces.csv.gz", 69_351, 1_632_719.7),
        ("traces/microsoft-itp-elasticflow/elasticflow_195job.csv", 195, None),
        ("traces/helios/venus_2vc_sept_with_users.csv", 1_867, None),
        ("traces/acme/kalos_first800_gpu_jobs.csv", 800, None),
        ("traces/alibaba-gpu-v2023/openb_pod_list_default.csv.gz", 7_063, None),
        ("traces/alibaba-gpu-v2023/openb_pod_list_multigpu50.csv.gz", 7_973, None),
        ("traces/research-workloads/chronus/trace_job_Philly_SLO.csv.gz", 30_735, None),
        ("rubick/trace-base.csv", 406, None),
        ("traces/standard/venus-sept.csv.gz", 24_171, None),
        ("traces/standard/saturn-syn-week.csv.gz", 29_416, None),
        ("muri/traces/trace1.csv", 1_494, 383_326.8),
        ("muri/traces/trace2.csv", 5_755, None),
        ("muri/traces/trace3.csv", 992, None),
        ("muri/traces/trace4.csv", 2_638, None),
        ("tiresias/jobs_60.csv", 60, 26_624 / 3600),
        ("gavel/gen_single_400j_r20.0_s17.trace", 400, 7_925.1),
        ("gavel/gen_multi_250j_r12.0_s19.trace", 250, 9_203.4),
        ("gavel/msr_2869ce_seed0.trace", 533, None),
        ("shockwave/canonical_120jobs_32gpus.trace", 120, None),
        ("shockwave/scale_900jobs_256gpus_a.trace", 900, None),
        ("sia/workloads/philly/workload-1.csv", 160, None),
        ("sia/workloads/newtrace/workload-1.csv", 960, None),
    ],
)
def test_public_files_load_with_their_published_totals(
    data: Callable[[str], Path], path: str, jobs: int, gpu_hours: float | None
) -> None:
    trace = load(data(path))

    assert len(trace) == jobs
    if gpu_hours is not None:
        assert trace.gpu_seconds / 3600 == pytest.approx(gpu_hours, rel=1e-4)


@pytest.mark.parametrize(
    ("trace", "tables", "profile", "gpu_hours"),
    [
        ("canonical_120jobs_32gpus", "tacc", "profile_120jobs", 176.6),
        ("scale_220jobs_64gpus", "wisr", "profile_220jobs", 371.8),
        ("scale_460jobs_128gpus", "wisr", "profile_460jobs", 769.9),
    ],
)
def test_regimes_made_from_shockwaves_tables_are_those_of_its_profiles(
    data: Callable[[str], Path], trace: str, tables: str, profile: str, gpu_hours: float
) -> None:
    options = Options(tables=str(data(f"shockwave/{tables}_throughputs.json")))
    made = load(data(f"shockwave/{trace}.trace"), options)
    given = load(data(f"shockwave/{profile}.json"))

    assert [truth.schedule for _, truth in made] == [truth.schedule for _, truth in given]
    lengths = [truth.length for _, truth in given]
    assert [truth.length for _, truth in made] == pytest.approx(lengths, rel=1e-4)
    assert made.gpu_seconds / 3600 == pytest.approx(gpu_hours, abs=0.1)


def test_one_set_of_a_combined_file_is_a_workload(data: Callable[[str], Path]) -> None:
    trace = load(data("traces/standard/philly-160.csv.gz"), Options(subset="3"))

    assert len(trace) == 160


@pytest.mark.slow
def test_all_of_philly_loads(data: Callable[[str], Path]) -> None:
    trace = load(data("traces/philly/philly_jobs_subset.csv.gz"))

    assert len(trace) == 82_247
    assert trace.gpu_seconds / 3600 == pytest.approx(978_078.5, rel=1e-4)


@pytest.mark.slow
def test_all_of_venus_loads_in_some_times_what_its_rows_alone_take(
    data: Callable[[str], Path],
) -> None:
    from time import process_time

    path = data("traces/normalized/helios_venus.csv.gz")
    before = process_time()
    with gzip.open(path, "rt", newline="") as file:
        rows = sum(1 for _ in csv.DictReader(file))
    between = process_time()
    trace = load(path)
    after = process_time()

    assert len(trace) == 125_214 <= rows
    assert after - between < 12.0 * (between - before)


@pytest.mark.parametrize(
    "key",
    [
        "philly",
        "itp",
        "pai",
        "acme_seren",
        "acme_kalos",
        *(f"helios_{name}" for name in ("venus", "earth", "saturn", "uranus")),
    ],
)
def test_generators_match_the_reference_samples(data: Callable[[str], Path], key: str) -> None:
    reference = load(data(f"traces/synthetic-samples/{key}_20k.csv.gz"))

    drawn = draw(DrawSettings(seed=1, jobs=20_000, load=0.8, gpus=100_000, limit=100_000), key=key)

    seconds, gpus = columns(reference)
    sizes = np.array([d.gpus * d.share for d in drawn.demands])
    assert distance(drawn.lengths, seconds) < 0.03
    assert distance(sizes, gpus) < 0.03
    assert drawn.lengths.mean() == pytest.approx(seconds.mean(), rel=0.3)


def columns(trace: Trace) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    lengths = np.array([truth.length for _, truth in trace])
    return lengths, np.array([job.demand.gpus * job.demand.share for job, _ in trace])


def distance(first: npt.NDArray[np.float64], two: npt.NDArray[np.float64]) -> float:
    """The two-sample Kolmogorov distance."""
    at = np.concatenate((first, two))
    below = [np.searchsorted(np.sort(x), at, "right") / x.size for x in (first, two)]
    return float(np.abs(below[0] - below[1]).max())
