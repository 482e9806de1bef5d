"""How jobs change their devices in a simulation, from what a user types: `restart` or `live`."""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.errors import InvalidConfig
from weft.core.model import Job
from weft.core.parameters import settings
from weft.perf.restart import state_gb

RESTART, LIVE = "restart", "live"
EXAMPLE = "restart, live, or live:prepare_s=5,pause_s=0.1"


@dataclass(frozen=True, slots=True)
class LiveTerms:
    """What a live resize takes, as `benchmarks.live_resize` measured it of our own runtime.

    A pause of `pause_s`, and `pause_gb_s` for each GB of state that new processes are sent.
    `prepare_s` is how long these get ready while the others train; None: as long as a restart of
    the job takes, so that nothing but the mechanism differs.
    """

    pause_s: float = 0.05
    pause_gb_s: float = 0.7
    prepare_s: float | None = None

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
    for key in ("pause_s", "pause_gb_s", "prepare_s"):
        value = {"pause_s": terms.pause_s, "pause_gb_s": terms.pause_gb_s}.get(key, terms.prepare_s)
        if value is not None and not 0.0 <= value < float("inf"):
            raise InvalidConfig(f"--resize live: {key} is {value:g}, expected 0 or more seconds")
    return terms
