"""What is simulated: files, clusters and conditions, and which of them the policy was tuned on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HETERO = "6x4:t4+3x8:rtx+2x8:a100"
OURS, SIA = "weft", "sia"
GAVEL = "gavel:objective=max-sum-throughput,solve=round,queue=all"
SRTF, POLLUX = "srtf", "pollux"
# Parameters were chosen on these three files; docs/explanation/weft.md names the one exception.
TUNED = ("philly/workload-1", "philly/workload-2", "saturn/workload-1")
UNTUNED = (
    *(f"philly/workload-{i}" for i in (3, 4, 5, 6)),
    *(f"saturn/workload-{i}" for i in (2, 3, 4, 5, 6, 7)),
)
NEWTRACE = tuple(f"newtrace/workload-{i}" for i in (1, 2))
SHORT = ("philly/workload-3", "saturn/workload-2")
# New processes are made ready as long as a published restart takes, or within seconds. `MEASURED`:
# what a stopped job needs from its checkpoint is our runtime's as well, 0.7 s and 17 s a GB, seen
# by `benchmarks.live_resize` beside its pauses; 5 s to get ready is assumed; first starts cost
# what was published throughout. `ON_GPUS`: the same as seen on an H200 (docs/explanation/
# live-resize.md): the dearest pauses, of two ranks that become four, and the longest preparation.
LIVE, SOON = (*UNTUNED[:3], *UNTUNED[4:7]), "live:prepare_s=10"
MEASURED = "live:prepare_s=5,restart_s=0.7,restart_gb_s=17"
ON_GPUS = "live:pause_s=0.02,pause_gb_s=0.85,prepare_s=5,restart_s=1.8,restart_gb_s=8"
FREE = "live:prepare_s=0,pause_s=0,pause_gb_s=0,restart_s=0"  # all but the first start
RATES = tuple(f"scale/rate_{rate}/workload-1" for rate in (10, 20, 30, 40, 50))


@dataclass(frozen=True, slots=True)
class Case:
    """One simulation.

    `arrivals` is how many times as fast jobs come, `unlabelled` the part of jobs that do not say
    which model they train, `resize` how running jobs change their GPUs.
    """

    file: str
    policy: str
    cluster: str = HETERO
    arrivals: float = 1.0
    unlabelled: float = 0.0
    resize: str = "restart"

    @property
    def key(self) -> str:
        """What results are kept under."""
        parts = (self.file, self.policy, self.cluster, f"{self.arrivals:g}", f"{self.unlabelled:g}")
        return " | ".join((*parts, self.resize))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A line of the table: what of ours against what of theirs, file by file."""

    name: str
    pairs: tuple[tuple[Case, Case], ...]


def compare(
    name: str,
    files: Iterable[str],
    ours: str = OURS,
    theirs: str = SIA,
    *,
    resize: str = "restart",
    their_resize: str = "restart",
    cluster: str = HETERO,
    arrivals: float = 1.0,
    unlabelled: float = 0.0,
) -> Comparison:
    """The same files under two policies; what is not said is the same for both."""
    pairs = (
        (
            Case(file, ours, cluster, arrivals, unlabelled, resize),
            Case(file, theirs, cluster, arrivals, 0.0, their_resize),
        )
        for file in files
    )
    return Comparison(name, tuple(pairs))


def scaled(times: int) -> str:
    """Sia's cluster so many times as large."""
    return f"{6 * times}x4:t4+{3 * times}x8:rtx+{2 * times}x8:a100"


PARTS: dict[str, tuple[Comparison, ...]] = {
    "restart": (
        compare("tuned on: philly 1-2, saturn 1", TUNED),
        compare("untuned: philly 3-6, saturn 2-7", UNTUNED),
        compare("newtrace 1-2, untuned as well", NEWTRACE),
        compare("untuned, against gavel", UNTUNED, theirs=GAVEL),
        compare("untuned, against srtf with an oracle", UNTUNED, theirs=SRTF),
        compare("untuned, against pollux (one file)", SHORT[:1], theirs=POLLUX),
    ),
    "history": (
        compare("no history: own reports alone", UNTUNED, unlabelled=1.0),
        compare("30 % of jobs unlabelled", UNTUNED, unlabelled=0.3),
        compare("sia with pooled beliefs", UNTUNED, ours="sia:pooled=true"),
    ),
    "live": (
        compare("live, against sia as published", LIVE, resize="live"),
        compare("live, against sia live", LIVE, resize="live", their_resize="live"),
        compare("ready in 10 s, against sia as published", LIVE, resize=SOON),
        compare("ready in 10 s, against sia alike", LIVE, resize=SOON, their_resize=SOON),
        compare("measured restarts, to sia as published", LIVE, resize=MEASURED),
        compare("measured restarts, to sia alike", LIVE, resize=MEASURED, their_resize=MEASURED),
        compare("as on a GPU, to sia as published", LIVE, resize=ON_GPUS),
        compare("as on a GPU, to sia alike", LIVE, resize=ON_GPUS, their_resize=ON_GPUS),
        compare("free changes, to sia as published", LIVE, resize=FREE),
    ),
    "scale": (
        compare("rates of 10 to 50 jobs an hour", RATES),
        *(
            compare(f"{n} times the size", (f"scale/scale_{n}x/workload-1",), cluster=scaled(n))
            for n in (2, 4, 8)
        ),
        compare("16x4:t4", SHORT, cluster="16x4:t4"),
        compare("arrivals x0.5", SHORT, arrivals=0.5),
        compare("arrivals x2", SHORT, arrivals=2.0),
    ),
}
