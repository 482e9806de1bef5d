"""Reasons why a job waits, each in its own words, which are equal everywhere.

A reason is a `Blocker` with the numbers that go with it; `Reason.text` is the only place where it
becomes a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from math import isfinite

from weft.core.model.cluster import CPU
from weft.core.model.job import Demand, Job
from weft.frozen import frozen
from weft.plural import say_gpus

ONE = re.compile(r"((?<![\d.,])1 (?:\S+ )?GPU)s\b")  # `1 GPUs`
GPU = "GPU"
NAMED = 3  # jobs that a reason names before it counts


class Blocker(StrEnum):
    """The one thing that keeps a job waiting."""

    SAID = "said"  # the decision gave a reason of its own
    SUSPENDED = "suspended"  # someone suspended it
    DEPENDENCY = "dependency"  # jobs that it comes after have not ended
    QUOTA = "quota"  # its tenant holds all that it may
    TOO_LARGE = "too_large"  # alone it is more than its tenant may hold
    SHARE = "share"  # its tenant holds its share while others wait
    PARALLEL = "parallel"  # as many of its sweep or app as may at once run, or wait before it
    GUARANTEE = "guarantee"  # what is free belongs to tenants who may start on it at any time
    RECLAIMED = "reclaimed"  # it ran on what its tenant had borrowed, and the owner needed it
    RESERVED = "reserved"  # what is free is kept for someone else, or for maintenance
    CELLS = "cells"  # its virtual cluster has no room for it
    IDLE_CELLS = "idle_cells"  # too few cells are left by guaranteed jobs, and it runs in no others
    KEPT = "kept"  # what is free is kept for a job that came before it and has waited long
    SPOT = "spot"  # spot jobs hold all that they may
    GAVE_WAY = "gave_way"  # it was stopped for others; why it waits after that is checked again
    NO_ROOM = "no_room"  # it may share a GPU, and none that is shared has room for it
    MOVED = "moved"  # it runs elsewhere than before, so that another could start
    FAILED = "failed"  # it failed, and is tried again after a pause
    SPARED = "spared"  # the policy fails with it
    STEADY = "steady"  # running jobs would have to change, and were changed a moment ago
    NOBODY = "nobody"  # no policy can decide
    AWAY = "away"  # nodes that could run it are drained, set aside or down
    GPUS = "gpus"  # too few devices are free
    NODES = "nodes"  # enough devices are free, but not the same number on each of its nodes
    CPUS = "cpus"  # devices are free, the CPUs beside them are not
    CPU_JOBS = "cpu_jobs"  # it asks for no device, and others without any have its CPUs or memory
    MEMORY = "memory"  # devices are free, the host memory beside them is not
    CLASS = "class"  # it fits, and would be in the way of a job of higher priority that waits
    ROUND = "round"  # it fits, and the policy decides at its next round, or is asked again soon
    FALLBACK = "fallback"  # it fits, and a safe order that stands in for the policy keeps it back
    TURN = "turn"  # it fits, and the policy keeps it back


@frozen
class Reason:
    """A blocker with its numbers and names, by the words that `WORDS` uses.

    `said` is the sentence itself, where it was made before.
    """

    blocker: Blocker
    values: Mapping[str, object] = field(default_factory=dict)
    said: str = ""

    @property
    def text(self) -> str:
        """Return the reason as one sentence without a full stop."""
        return self.said or ONE.sub(r"\1", WORDS[self.blocker].format(**self.values))


WORDS: Mapping[Blocker, str] = {
    Blocker.SAID: "{text}",
    Blocker.SUSPENDED: "suspended by {by}",
    Blocker.DEPENDENCY: "waits for {jobs} to end",
    Blocker.QUOTA: "over quota: with its {asks:g} GPUs tenant {tenant!r} would hold more than "
    "{limit:g} {kind}GPUs",
    Blocker.TOO_LARGE: "over quota: it asks for {asks:g}, more than the {limit:g} {kind}GPUs that "
    "tenant {tenant!r} may ever hold",
    Blocker.SHARE: "over its share: tenant {tenant!r} holds its part while others wait",
    Blocker.PARALLEL: "waits behind others of {app}: {limit} of them may run at once",
    Blocker.GUARANTEE: "over quota: tenant {tenant!r} has {quota:g} GPUs of its own, and the "
    "others' are in use or about to be",
    Blocker.RECLAIMED: "gave way: {gpus} went back to tenant {to}, whose quota it was, after "
    "{minutes:.0f} min; it goes on when there is room",
    Blocker.RESERVED: "waits for {asks}; what is free is kept: {kept}",
    Blocker.KEPT: "waits for {asks}; what is free is kept for {job}, which came before it and "
    "waits for {more}",
    Blocker.CELLS: "waits for {asks} in the virtual cluster of tenant {tenant!r}: {held:g} of its "
    "{own:g} GPUs are in use{away}",
    Blocker.IDLE_CELLS: "waits for {asks} in cells of virtual clusters that their tenants do "
    "not need now",
    Blocker.SPOT: "waits for {asks}: spot jobs hold {held:g} of the {quota:g} {kind}GPUs that they "
    "may use now",
    Blocker.GAVE_WAY: "{text}",
    Blocker.NO_ROOM: "{text}",
    Blocker.MOVED: "moved from {origin} to {target} so that {starts} could start: {lost:.2f} "
    "GPU-hours lost, {gained:.2f} gained",
    Blocker.FAILED: "failed before{what}; tried again in {seconds:.0f} s",
    Blocker.SPARED: "left out: policy {policy!r} fails with it ({error})",
    Blocker.STEADY: "waits for {asks}; jobs that would give way are left alone for "
    "{seconds:g} s after they start or change",
    Blocker.NOBODY: "nothing is decided: {trouble}",
    Blocker.AWAY: "waits for {asks}; {which} that could run it {are} {states}",
    Blocker.GPUS: "waits for {asks}; {free}{held}",
    Blocker.NODES: "waits for {asks}; {free}{held}",
    Blocker.CPUS: "waits for {asks} with {need:g} CPUs; GPUs are free, but the CPUs beside them "
    "are taken",
    Blocker.MEMORY: "waits for {asks} with {need:g} GB of host memory; GPUs are free, but the "
    "memory beside them is taken",
    Blocker.CLASS: "waits behind {job}, which has a higher priority and waits for {asks}",
    Blocker.ROUND: "waits for {when}; {asks} {are} free for it",
    Blocker.FALLBACK: "waits its turn; {asks} {are} free for it, but the fallback order keeps "
    "it back ({trouble})",
    Blocker.TURN: "waits its turn; {asks} {are} free for it, but {why}; looked at again {when}",
    Blocker.CPU_JOBS: "waits for {asks}; other jobs without GPUs have them",
}


def plain_facts(values: Mapping[str, object]) -> dict[str, str | float]:
    """Return the facts of a reason that a log keeps: texts and numbers."""
    plain = {name: v for name, v in values.items() if isinstance(v, (str, int, float))}
    return {n: v for n, v in plain.items() if isinstance(v, str) or isfinite(v)}


def asks_for(gpus: int, kinds: tuple[str, ...] = (), share: float = 1.0, nodes: int = 0) -> str:
    """`2 GPUs`, `4 a100 GPUs on 2 nodes`, `0.5 of a GPU`, `1 CPU slot` where there are no GPUs."""
    word = device_word(kinds)
    kind = word if not kinds or word != GPU else f"{'/'.join(kinds)} {word}"
    if share < 1.0:
        return f"{share:g} of {'an' if kind[:1] in 'aeiou' else 'a'} {kind}"
    where = f" on {nodes} node{'s' * (nodes != 1)}" if nodes else ""
    return f"{gpus} {kind}{'s' * (gpus != 1)}{where}"


def describe_demand(demand: Demand, least: int, there: Iterable[str]) -> str:
    """Describe a request, in the words for the kinds of devices that are there."""
    kinds = demand.kinds if device_word(there) == GPU else (CPU,)
    return asks_for(least, kinds, demand.share, demand.nodes)


def device_word(kinds: Iterable[str]) -> str:
    """The word for devices of these kinds: a machine without GPUs has CPU slots."""
    return "CPU slot" if set(kinds) == {CPU} else GPU


def describe_host(job: Job) -> str:
    """`2 CPUs and 4 GB`: what a job without devices asks for."""
    memory = f" and {job.mem_gb:g} GB" if job.mem_gb else ""
    return f"{job.cpus or 0.0:g} CPU{'s' * (job.cpus != 1)}{memory}"


def name_some(jobs: Sequence[str]) -> str:
    """`a, b and c`, or `a, b and 7 more`."""
    names = list(jobs) if len(jobs) <= NAMED else [*jobs[: NAMED - 1], f"{len(jobs) - 2} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def say_held(
    held: Sequence[tuple[str, float]], others: tuple[int, float], *, all_taken: bool
) -> str:
    """`: a (8), b (4) and 3 more jobs (6) hold them`: the jobs that hold what is not free.

    `held` are jobs that may be named with what they hold, `others` how many may not, and what those
    hold together.
    """
    most = sorted(held, key=lambda holder: -holder[1])
    shown = most if len(most) <= NAMED else most[: NAMED - 1]
    rest = most[len(shown) :]
    parts = [f"{name} ({gpus:g})" for name, gpus in shown]
    if rest:
        parts.append(f"{len(rest)} more jobs ({sum(gpus for _, gpus in rest):g})")
    if others[0]:
        parts.append(f"{others[0]} job{'s' * (others[0] > 1)} of other tenants ({others[1]:g})")
    if not parts:
        return ""
    single = len(most) + others[0] == 1
    words = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    what = "them" if all_taken else "the others"
    return f"{':' if all_taken else ';'} {words} {'holds' if single else 'hold'} {what}"


def say_lent(lent: float, own: float) -> str:
    """`; 3 of its tenant's own 4 GPUs are lent to jobs that may not be stopped, ...`."""
    some = "" if lent >= own else f"{lent:g} of "
    verb = "is" if lent == 1.0 else "are"
    return (
        f"; {some}its tenant's own {say_gpus(own)} {verb} lent to jobs that may not be stopped, "
        "until these end"
    )


def say_away(away: int, nodes: int) -> str:
    """`the node`, `all 3 nodes`, `2 of 3 nodes`."""
    if away < nodes:
        return f"{away} of {nodes} nodes"
    return "the node" if nodes == 1 else f"all {nodes} nodes"


def say_nodes_free(count: int, per_node: int, *, several_kinds: bool) -> str:
    """`no node has 4 free`, `only 1 node has 4 free`, `only 2 nodes of one kind have 4 free`."""
    if count == 0:
        return f"no node has {per_node} free"
    kind = " of one kind" if several_kinds else ""
    return f"only {count} node{'s' * (count != 1)}{kind} {'has' if count == 1 else 'have'} " + (
        f"{per_node} free"
    )


def say_free(most: float, *, several_kinds: bool) -> str:
    """`none is free`, `only 1 is free`, `only 2 of one kind are free`."""
    if most <= 0.0:
        return "none is free"
    kind = "of one kind " if several_kinds else ""
    return f"only {most:g} {kind}{'is' if most == 1.0 else 'are'} free"
