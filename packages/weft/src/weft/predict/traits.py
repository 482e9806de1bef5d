"""Traits that tell how long a job will run: who submitted it, what it runs, how large it is.

Jobs that run the same program recur (two thirds of the tasks of PAI, NSDI 2022), so a command line
is reduced to what its author would call the same experiment. Values of the environment and secrets
never enter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha1
from pathlib import PurePosixPath

from weft.core.model.job import Job
from weft.core.model.launch import Launch
from weft.frozen import frozen

Key = tuple[str, ...]
Generalise = Callable[[str], str]

# Each reads a text in time that grows as its length does, whatever it holds.
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
DATE = re.compile(r"\d{4}[-_.]?\d{2}[-_.]?\d{2}([-_.T]?\d{2}[-_.:]?\d{2}([-_.:]?\d{2})?)?")
HEX = re.compile(r"[0-9a-f]{8,}", re.IGNORECASE)
DIGITS = 12
MOST_TEXT = 20_000  # characters of a command in which numbers, paths and dates are looked for
# What jobs of a group have in common, the most telling first; a key begins with its name.
GROUPS = ("exact", "group", "model", "user gpus", "user", "tenant gpus", "gpus", "all")
OF_TENANT = frozenset(GROUPS[:6])  # the second part of their keys is the tenant
INTERPRETERS = re.compile(r"(python|bash|sh|torchrun|accelerate|deepspeed|uv|env|time|srun)[\d.]*$")


@frozen
class TraitGroup:
    """A group of jobs that a job belongs to: its key, and how people speak of its last ends."""

    key: Key
    whose: str
    noun: str
    rest: str = ""

    @property
    def position(self) -> int:
        return GROUPS.index(self.key[0])

    def words(self, count: int) -> str:
        """Such as "your last 6 runs of train.py with 4 GPUs"."""
        many = f"{count} {self.noun}s" if count != 1 else self.noun
        return f"{self.whose} last {many} {self.rest}".rstrip()


def levels_of(job: Job) -> tuple[TraitGroup, ...]:
    """The groups of a job, the most telling first, all jobs last; what adds nothing is left out."""
    demand, launch = job.demand, job.launch
    size = f"{demand.gpus * demand.share:g}"
    bucket, gpus = size_bucket(demand.gpus * demand.share), _count_gpus(job)
    who = (job.tenant, job.user)
    levels = []
    mine = "your" if job.user else "the"
    if launch is not None and launch.command:
        script = script_of(launch)
        exact, group = (
            ("exact", *who, exact_of(launch), size),
            ("group", *who, group_of(launch), size),
        )
        levels.append(TraitGroup(exact, mine, "run", f"of {script} {gpus}"))
        levels.append(TraitGroup(group, mine, "run", f"like {script} {gpus}"))
    if named := job.model or job.app:
        levels.append(TraitGroup(("model", *who, named, size), mine, "job", f"of {named} {gpus}"))
    if job.user:
        levels.append(TraitGroup(("user gpus", *who, bucket), mine, "job", gpus))
        levels.append(TraitGroup(("user", *who), mine, "job"))
    if job.tenant:
        whose = f"{job.tenant}'s"
        levels.append(TraitGroup(("tenant gpus", job.tenant, bucket), whose, "job", gpus))
    levels.append(TraitGroup(("gpus", bucket), "the", "job", gpus))
    levels.append(TraitGroup(("all",), "the", "job"))
    return tuple(levels)


def size_bucket(gpus: float) -> str:
    """Sizes that go together: parts of a GPU, 1, 2, 3-4, 5-8, 9-16, ..."""
    if gpus <= 2.0:
        return f"{gpus:g}"
    top = 4
    while gpus > top:
        top *= 2
    return f"<={top}"


def group_of(launch: Launch) -> str:
    """The experiment whatever its numbers, paths and dates: 12 hex digits."""
    return _digest(launch, _generalise, MOST_TEXT)


def exact_of(launch: Launch) -> str:
    """The very same command."""
    return _digest(launch, lambda word: word, None)


def script_of(launch: Launch) -> str:
    """The name of the program: the script that an interpreter runs, or the program."""
    for word in launch.command:
        name = PurePosixPath(word).name
        if not word.startswith("-") and not INTERPRETERS.match(name) and not NUMBER.fullmatch(name):
            return name
    return PurePosixPath(launch.command[0]).name


def _digest(launch: Launch, shorten: Generalise, most: int | None) -> str:
    program, *words = launch.command if most is None else _cut(launch.command, most)
    plain, flags = [PurePosixPath(program).name], []
    position = 0
    while position < len(words):
        word, position = words[position], position + 1
        if not word.startswith("--"):
            plain.append(shorten(word))
            continue
        flag, equals, value = word.partition("=")
        if not equals and position < len(words) and not words[position].startswith("-"):
            value, position = words[position], position + 1
        flags.append(f"{flag}={shorten(value)}")
    where = "/".join(PurePosixPath(launch.workdir).parts[-2:])
    image = launch.software.name if launch.software is not None else ""
    text = "\0".join([*plain, *sorted(flags), where, image])
    return sha1(text.encode(), usedforsecurity=False).hexdigest()[:DIGITS]


def _cut(words: Sequence[str], most: int) -> Iterator[str]:
    """The first of the words, with that many characters together."""
    for word in words:
        yield word[:most]
        most -= len(word) + 1
        if most <= 0:
            return


def _generalise(word: str) -> str:
    """A word without what changes from run to run."""
    if NUMBER.fullmatch(word):
        return "#"
    if "/" in word:
        path = PurePosixPath(word)
        word = path.name if path.suffix else path.parent.name or path.name
    return NUMBER.sub("#", HEX.sub(_hide_digits, DATE.sub("*", word)))


def _hide_digits(hexadecimal: re.Match[str]) -> str:
    """A star for what has a digit; `feedface` may be a word."""
    text = hexadecimal[0]
    return text if text.isalpha() else "*"


def _count_gpus(job: Job) -> str:
    gpus = job.demand.gpus * job.demand.share
    return f"with {gpus:g} {'GPU' if gpus == 1.0 else 'GPUs'}"
