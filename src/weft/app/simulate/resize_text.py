"""How jobs change their devices in a simulation, from what a user types: `restart` or `live`."""

from __future__ import annotations

from dataclasses import asdict

from weft.core.asleep.rules import StopRules
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job
from weft.core.spec.parameters import settings
from weft.core.stops import SLEEPS, Rung
from weft.frozen import frozen
from weft.perf.restart import state_gb
from weft.sim.asleep import drawn_gb

RESTART, LIVE = "restart", "live"
EXAMPLE = "restart, live, or live:prepare_s=5,pause_s=0.1,restart_s=1,restart_gb_s=17"


@frozen
class LiveTerms:
    """What a live resize takes, as `benchmarks.live_resize` measured it of our own runtime.

    A pause of `pause_s`, and `pause_gb_s` for each GB of state that new processes are sent.
    `prepare_s` is how long these get ready while the others train; None: as long as a restart of
    the job takes, so that nothing but the mechanism differs. A job that was stopped comes back from
    its checkpoint within `restart_s`, and `restart_gb_s` for each GB; None: as published.
    """

    pause_s: float = 0.05
    pause_gb_s: float = 0.7
    prepare_s: float | None = None
    restart_s: float | None = None
    restart_gb_s: float = 0.0

    def restart_of(self, job: Job) -> float | None:
        """Seconds of a later start; None for what was published."""
        if self.restart_s is None:
            return None
        return self.restart_s + self.restart_gb_s * state_gb(job.model)

    def pause_of(self, job: Job) -> float:
        """Seconds without progress when a job is sent to other devices."""
        return self.pause_s + self.pause_gb_s * state_gb(job.model)


def read_resize(text: str) -> LiveTerms | None:
    """None for restarts."""
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if rest else []
    if name not in (RESTART, LIVE) or (name == RESTART and pairs) or not all(p[1] for p in pairs):
        raise InvalidConfig(f"--resize {text!r} means nothing", hint=f"say {EXAMPLE}")
    if name == RESTART:
        return None
    typed = {key.strip(): value for key, _, value in pairs}
    terms = LiveTerms(**settings("--resize live", LiveTerms, typed))
    for key, value in asdict(terms).items():
        if value is not None and not 0.0 <= value < float("inf"):
            raise InvalidConfig(f"--resize live: {key} is {value:g}, expected 0 or more seconds")
    return terms


# How running jobs of a simulation can be put to sleep, in the words that people type.


def read_stops(text: str) -> frozenset[Rung]:
    """The rungs that are named; InvalidConfig for a name that is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {str(rung): rung for rung in SLEEPS}
    if wrong := [name for name in names if name not in known]:
        raise InvalidConfig(
            f"stops: {wrong[0]!r} is not a way to put jobs to sleep",
            hint="--stops takes freeze, suspend or freeze,suspend",
        )
    return frozenset(known[name] for name in names)


def stop_rules(text: str, cluster: Cluster) -> StopRules | None:
    """What is possible on a cluster; None where every stop is a checkpoint."""
    rungs = read_stops(text)
    if not rungs:
        return None

    def memory(job: Job, on: Allocation) -> float:
        at = cluster.index.get(on.slices[0].node)
        return drawn_gb(job, cluster.nodes[at].device_gb if at is not None else 0.0)

    return StopRules(rungs, memory=memory, all_save=True)
