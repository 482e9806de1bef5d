"""A policy's statement about itself: origin, what it reads, what it sets, when it decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from enum import Enum, Flag, auto

from weft.core.events.event import PolicyTerms
from weft.core.model.cluster import Cluster
from weft.core.plan.taxonomy import Taxonomy
from weft.frozen import frozen


class Needs(Flag):
    """Knowledge a policy reads beyond what every scheduler sees."""

    NOTHING = 0
    REMAINING = auto()  # an estimate of each job's remaining time
    HISTORY = auto()  # service received by finished jobs
    MODEL = auto()  # the name of the model a job trains


class Assumes(Flag):
    """Assumptions of a simulation that a policy asks for, as its authors' simulator makes them."""

    NOTHING = 0
    BATCH_CAP = auto()  # believed goodput is that of batches up to the one a job was submitted with
    ONE_KIND = auto()  # jobs tune themselves by one model over all GPU kinds, fitted early


class Controls(Flag):
    """Fields of an allocation beyond whole devices that a policy sets or an engine honours."""

    NOTHING = 0
    SHARE = auto()  # several guaranteed jobs on a device, under a discipline
    TIER = auto()  # opportunistic jobs
    PHASE = auto()  # offsets inside a common period
    BATCH = auto()  # batch size
    HOST = auto()  # CPU and memory other than in proportion to GPUs
    COUNT = auto()  # another GPU count than the job asked for
    SHIFT = auto()  # when iterations begin, against those of jobs on the same network links
    RESIZE = auto()  # other devices for jobs that train on meanwhile; policies need not set it
    PLAN = auto()  # the execution plan of jobs that declare several


class Ties(Enum):
    """Placements that are as good to a policy as the one it chose."""

    NODES = auto()  # as many devices on as many nodes of the kind, whichever these are
    NONE = auto()  # which nodes and devices is what it decides, or what it remembers


class Wants(Flag):
    """Objects that an engine must be given when it is built, beside its parameters."""

    NOTHING = 0
    STATE = auto()  # `state`: a folder for all that survives
    SLOTS = auto()  # `slots`: CPU slots where there are no GPUs
    VARIABLES = auto()  # `pass_env`: names of our own variables that jobs are given
    USERS = auto()  # `users`: whom jobs run as, by account or tenant
    CLIENTS = auto()  # `why_apart`: whether a job may be a client of MPS
    PHYSICS = auto()  # `perf`, `coupling`, `seconds`: speeds alone and beside others, time


def accept_any(cluster: Cluster) -> str:  # noqa: ARG001 - what a policy may say about a cluster
    """No objection, whatever the machines."""
    return ""


UNDECLARED = Taxonomy()


@frozen
class About:
    """A policy's name, paper and habits.

    `every` is the length of a round in seconds: the policy decides at its multiples. None
    means it decides whenever something happened. `starves` names the reason a fitting job
    may wait forever under this policy, or is empty where none may. `resume_s` is for policies
    that suspend jobs to host memory: what it costs to go on where a job ran last; None means
    that every stop is a checkpoint and every start after it a restart. `assumes` is for
    simulations alone. `weighs` says that it divides the cluster by the view's weights itself, so
    that no other part needs to. `saves_every` is for policies whose jobs are saved only when they
    ran for so long: a stop before loses what was done since; None: every stop saves. `ties` says
    whether jobs that it starts may be put on other nodes instead. `taxonomy` is where it stands in
    the field. `resize_s` is for policies that let jobs grow and shrink as they run: what that costs
    a job that keeps some of its devices; None: a restart. `whole` says that it ranks classes of
    jobs itself and must be shown all of them with its memory: wrappers that ask about some at a
    time leave it alone. `pools` says that it reads what all jobs of a model reported together.
    `idles` names the reason a GPU may be idle although a job could use it, or is empty where that
    never happens. `objection` says in a line why it cannot be used on a cluster. A wrapper passes
    all of it on.
    """

    name: str
    paper: str
    needs: Needs = Needs.NOTHING
    controls: Controls = Controls.NOTHING
    every: float | None = None
    starves: str = ""
    resume_s: float | None = None
    assumes: Assumes = Assumes.NOTHING
    weighs: bool = False
    saves_every: float | None = None
    ties: Ties = Ties.NODES
    taxonomy: Taxonomy = UNDECLARED
    resize_s: float | None = None
    whole: bool = False
    pools: bool = False
    idles: str = ""
    objection: Callable[[Cluster], str] = field(default=accept_any, compare=False)


def terms_of(about: About) -> PolicyTerms:
    """Return the properties of a policy that a log states."""
    return PolicyTerms(about.every, about.idles, Controls.COUNT in about.controls)


def may_idle(about: About, why: str) -> About:
    """A policy's `About` with one reason more why a GPU may be idle although a job could use it."""
    return replace(about, idles="; ".join(filter(None, (about.idles, why))))


def sizes_in_rounds(
    name: str,
    paper: str,
    every: float,
    taxonomy: Taxonomy,
    *,
    needs: Needs = Needs.NOTHING,
    also: Controls = Controls.NOTHING,
    starves: str = "",
) -> About:
    """Describe a policy that chooses every job's size again each round, by its gain from GPUs."""
    gain = "GPUs go only to jobs that are predicted to benefit from them"
    controls = Controls.COUNT | also
    return About(name, paper, needs, controls, every, starves, taxonomy=taxonomy, idles=gain)
