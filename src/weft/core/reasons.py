"""Why a job waits: every reason there is, each in its own words, everywhere the same.

A reason is a `Blocker` with the numbers that go with it; `Reason.text` is the only place where it
becomes a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

NAMED = 3  # jobs that a reason names before it counts


class Blocker(StrEnum):
    """The one thing that keeps a job waiting."""

    SAID = "said"  # the decision gave its own reason
    QUOTA = "quota"  # its tenant holds all that it may
    TOO_LARGE = "too_large"  # alone it is more than its tenant may hold
    SHARE = "share"  # its tenant holds its share while others wait
    DEPENDENCY = "dependency"  # jobs that it is to run after have not ended
    PARALLEL = "parallel"  # as many jobs of its sweep or app run as may at once
    FAILED = "failed"  # it failed, and is tried again after a pause
    SPARED = "spared"  # the policy fails with it
    NOBODY = "nobody"  # nobody can decide
    AWAY = "away"  # nodes that could run it are drained or down
    GPUS = "gpus"  # too few devices are free
    HOST = "host"  # devices are free, the CPUs or the memory beside them are not
    ROUND = "round"  # it fits, and the policy decides at its next round
    TURN = "turn"  # it fits, and the policy keeps it back


@dataclass(frozen=True, slots=True)
class Reason:
    """A blocker with its numbers and names, by the words that `WORDS` uses."""

    blocker: Blocker
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """One sentence without a full stop."""
        return WORDS[self.blocker].format(**self.values)


WORDS: Mapping[Blocker, str] = {
    Blocker.SAID: "{text}",
    Blocker.QUOTA: "over quota: with its {asks:g} GPUs tenant {tenant!r} would hold more than "
    "{limit:g} {kind}GPUs",
    Blocker.TOO_LARGE: "over quota: it asks for {asks:g}, more than the {limit:g} {kind}GPUs that "
    "tenant {tenant!r} may ever hold",
    Blocker.SHARE: "over its share: tenant {tenant!r} holds its part while others wait",
    Blocker.DEPENDENCY: "waits for {jobs} to end",
    Blocker.PARALLEL: "waits for others of {app}: {limit} of them may run at once",
    Blocker.FAILED: "failed before{what}; tried again in {seconds:.0f} s",
    Blocker.SPARED: "left out: policy {policy!r} fails with it ({error})",
    Blocker.NOBODY: "nothing is decided: {trouble}",
    Blocker.AWAY: "waits for {asks}; {away} of {nodes} nodes that could run it are drained or down",
    Blocker.GPUS: "waits for {asks}; at most {free:g} of one kind are free",
    Blocker.HOST: "waits for {asks}; GPUs are free, the CPUs or the memory beside them are not",
    Blocker.ROUND: "waits for {asks}, which are free; the policy decides again in {seconds:.0f} s",
    Blocker.TURN: "waits its turn for {asks}, which are free; policy {policy!r} keeps it back",
}


def asks_for(gpus: int, kinds: tuple[str, ...] = (), share: float = 1.0) -> str:
    """`2 GPUs`, `4 a100 GPUs`, `0.5 of a GPU`."""
    kind = f"{'/'.join(kinds)} " if kinds else ""
    if share < 1.0:
        return f"{share:g} of a {kind}GPU"
    return f"{gpus} {kind}GPU{'s' * (gpus != 1)}"


def name_some(jobs: Sequence[str]) -> str:
    """`a, b and c`, or `a, b and 7 more`."""
    names = list(jobs) if len(jobs) <= NAMED else [*jobs[: NAMED - 1], f"{len(jobs) - 2} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
