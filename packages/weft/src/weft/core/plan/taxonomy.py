"""A scheduler's place in the field: what it wants, what it must know, what it may do.

Policies declare all of it in `About.taxonomy`; wrappers (`adds`) and parts of a composition
declare what they bring, and leave the rest to what they are joined with.
"""

from __future__ import annotations

from dataclasses import fields
from enum import Flag, auto
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from weft.frozen import frozen_by_name


class Objective(Flag):
    """The aim of a scheduler."""

    IN_ORDER = auto()  # jobs start in order of submission
    COMPLETION_TIME = auto()
    MAKESPAN = auto()
    THROUGHPUT = auto()  # work done, goodput included
    FAIRNESS = auto()
    QUALITY = auto()  # losses, or what results are worth
    DEADLINES = auto()
    COST = auto()
    FEEDBACK = auto()  # all jobs show first results early
    UTILIZATION = auto()
    GUARANTEES = auto()  # what jobs were promised


class NeededKnowledge(Flag):
    """Facts about jobs that it must know beforehand, or learn."""

    NOTHING = 0
    DURATIONS = auto()  # how long jobs still take, from a predictor
    PAST_JOBS = auto()  # service of finished jobs
    MODELS = auto()  # which model a job trains
    SPEEDS = auto()  # how fast a job is on which GPUs, measured or reported
    PROFILES = auto()  # what a job does with a device and its host
    LOSSES = auto()  # how the loss falls
    WORTH = auto()  # what a result is worth at which time
    TRAFFIC = auto()  # when and how much a job communicates


class Heterogeneity(Flag):
    """The use that it makes of unequal machines."""

    ALIKE = 0  # a job gets a kind that it accepts; which one does not matter
    SPEEDS = auto()  # kinds by how fast they are for the job
    HOSTS = auto()  # CPU cores and memory by what jobs make of them


class Elasticity(Flag):
    """The changes of a job's size that it may make."""

    RIGID = 0
    GPUS = auto()
    SERVERS = auto()  # parameter servers beside workers
    BATCH = auto()
    PLANS = auto()  # execution plans: how model and batch are divided among GPUs


class DeviceSharing(Flag):
    """The ways in which several jobs use one device."""

    EXCLUSIVE = 0
    SIDE_BY_SIDE = auto()
    TURNS = auto()  # one after the other, suspended meanwhile
    INTERLEAVED = auto()  # stages of iterations take turns
    OPPORTUNISTIC = auto()  # guests that may not disturb


class TopologyKnowledge(Flag):
    """The links between devices that it knows of."""

    ANY_NODES = 0
    FEW_NODES = auto()  # where there is room now
    CONSOLIDATED = auto()  # gangs wait for the fewest nodes, all or those that need it
    LINKS = auto()  # links inside a node
    NETWORK = auto()  # links between nodes, shared in time
    CELLS = auto()  # a hierarchy of parts that keeps gangs together


class Fairness(Flag):
    """The parties that it treats equally."""

    NONE = 0
    JOBS = auto()
    USERS = auto()  # users or tenants, by weight
    FINISH_TIME = auto()  # no job ends later than on its own share of the cluster


class Preemption(Flag):
    """The interruptions that a running job may get."""

    NEVER = 0
    STOPS = auto()
    SUSPENDS = auto()  # to host memory, at little cost
    RESIZES = auto()
    MOVES = auto()


@frozen_by_name
class Taxonomy:
    """One place in the field; None leaves an answer to what it is joined with.

    Whether a job may starve is `About.starves`.
    """

    objective: Objective | None = None
    knowledge: NeededKnowledge | None = None
    heterogeneity: Heterogeneity | None = None
    elasticity: Elasticity | None = None
    sharing: DeviceSharing | None = None
    topology: TopologyKnowledge | None = None
    fairness: Fairness | None = None
    preemption: Preemption | None = None

    def answers(self) -> dict[str, Flag]:
        """Every question that is answered here, with the answer."""
        answers = zip(QUESTIONS, read_answers(self), strict=True)
        return {name: flag for name, flag in answers if flag is not None}

    def missing(self) -> tuple[str, ...]:
        """Questions without an answer."""
        return tuple(name for name in QUESTIONS if name not in self.answers())


QUESTIONS = tuple(f.name for f in fields(Taxonomy))
read_answers = attrgetter(*QUESTIONS)
_QUESTION_OF = {get_args(hint)[0]: name for name, hint in get_type_hints(Taxonomy).items()}
Unusual = Heterogeneity | Elasticity | DeviceSharing | TopologyKnowledge | Fairness
Answer = Objective | NeededKnowledge | Preemption | Unusual
USUAL: tuple[Unusual, ...] = (
    *(Heterogeneity.ALIKE, Elasticity.RIGID, DeviceSharing.EXCLUSIVE),
    *(TopologyKnowledge.FEW_NODES, Fairness.NONE),
)


def classify(
    objective: Objective, knowledge: NeededKnowledge, preemption: Preemption, *unusual: Unusual
) -> Taxonomy:
    """The place of a whole policy; by default with rigid jobs on devices of their own.

    `unusual` are its answers that are not the usual ones.
    """
    return declare(objective, knowledge, preemption, *USUAL, *unusual)


def declare(*answers: Answer) -> Taxonomy:
    """These answers, of which the last to a question holds; each question is a class of its own."""
    named: dict[str, Any] = {_QUESTION_OF[type(flag)]: flag for flag in answers}
    return Taxonomy(**named)


# What an answer of nothing is called, and what any other is called beside its own words.
NOTHING = {
    "knowledge": "no-knowledge",
    "heterogeneity": "kinds-alike",
    "elasticity": "rigid",
    "sharing": "exclusive",
    "topology": "any-nodes",
    "fairness": "no-fairness",
    "preemption": "non-preemptive",
}
SOMETHING = {
    "heterogeneity": "heterogeneous",
    "elasticity": "elastic",
    "sharing": "sharing",
    "topology": "topology",
    "fairness": "fairness",
    "preemption": "preemptive",
}


def words_of(question: str, answer: Flag) -> tuple[str, ...]:
    """An answer in words: `durations, models`; one word for nothing."""
    words = tuple((flag.name or "").lower().replace("_", "-") for flag in answer)
    return words or (NOTHING[question],)


def tags_of(place: Taxonomy, starves: str) -> tuple[str, ...]:
    """Everything that can be asked for: each answer's words, and what follows from them."""
    tags: list[str] = []
    for question, answer in place.answers().items():
        words = words_of(question, answer)
        if question == "knowledge":
            known = NeededKnowledge.DURATIONS in answer
            tags += ["known-durations" if known else "unknown-durations"]
            tags += [f"needs-{word}" for word in words if answer] or list(words)
            continue
        tags += [SOMETHING[question]] if question in SOMETHING and answer else []
        tags += [f"{question}-{word}" if (question, word) in AMBIGUOUS else word for word in words]
    tags.append("may-starve" if starves else "no-starvation")
    return tuple(dict.fromkeys(tags))


# Words that mean something else under another question.
AMBIGUOUS = {("fairness", "finish-time"), ("fairness", "jobs"), ("fairness", "users")}
AMBIGUOUS |= {("heterogeneity", "speeds"), ("heterogeneity", "hosts")}
