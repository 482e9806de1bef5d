"""The ranks of an attempt while they come and go: planned without I/O, kept in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.base.messages import GroupPlan
from weft.core.errors import EngineError
from weft.core.model.job import Allocation, Job, Slice
from weft.engines.attempts.request import adjustment
from weft.engines.fleet.port import Abilities, AttemptPart, Gang, name_extension
from weft.engines.fleet.requests import (
    AttemptSite,
    make_gang,
    read_gang,
    read_part,
    write_gang,
    write_part,
)
from weft.frozen import frozen
from weft.wire.attempt import AttemptSpec, read_json, write_whole

RANKS = "ranks.json"  # in an attempt's folder, once its ranks have changed


@frozen
class PendingChange:
    """The change `epoch` of an attempt, not answered yet.

    `extension` are the parts that join, None if none does; `parts` all that there are afterwards,
    in the order of their ranks. `terms` are sent to agents when it is made. `start` is what the
    agent that is there needs to start new ranks itself, empty where these have agents of their own.
    """

    epoch: int
    extension: Gang | None
    parts: tuple[AttemptPart, ...]
    terms: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)

    @property
    def joining_ranks(self) -> tuple[int, ...]:
        """The ranks that join, by number."""
        if self.extension is None:
            return tuple(self.start.get("new", ()))
        return numbers_of(self.extension.parts)


@frozen
class Roster:
    """All gangs that a manager may have of an attempt, and the parts that its ranks are in.

    `answer` is what was said of the last change: nothing is asked for twice. `several` ranks may
    change as they train, or only a single one.
    """

    gangs: tuple[Gang, ...]
    parts: tuple[AttemptPart, ...]
    next_number: int
    change: PendingChange | None = None
    answer: Mapping[str, Any] = field(default_factory=dict)
    several: bool = False

    @property
    def every_gang(self) -> tuple[Gang, ...]:
        """All gangs, with those that join."""
        joins = None if self.change is None else self.change.extension
        return self.gangs if joins is None else (*self.gangs, joins)

    @property
    def leaving(self) -> dict[int, AttemptPart]:
        """The parts of ranks that the change lets go, by number."""
        if self.change is None:
            return {}
        stay = {*numbers_of(self.change.parts)}
        return {n: part for part in self.parts for n in part.numbers if n not in stay}

    def finish(self, answer: Mapping[str, Any]) -> Roster:
        assert self.change is not None
        held = {part.folder for part in self.change.parts}
        gangs = (gang for gang in self.every_gang if held & {part.folder for part in gang.parts})
        parts = self.change.parts
        return replace(self, gangs=tuple(gangs), parts=parts, change=None, answer=answer)


def begin_roster(gang: Gang) -> Roster:
    """Return the roster of an attempt as it was started."""
    parts, number = [], 0
    for part in gang.parts:
        count = max(len(part.gpus), 1)
        parts.append(replace(part, numbers=tuple(range(number, number + count))))
        number += count
    return Roster((gang,), tuple(parts), number)


def numbers_of(parts: Sequence[AttemptPart]) -> tuple[int, ...]:
    """The ranks in these parts, in their order."""
    return tuple(number for part in parts for number in part.numbers)


def keep_parts(roster: Roster, to: Allocation, abilities: Abilities) -> tuple[AttemptPart, ...]:
    """The parts that stay on the devices `to`; EngineError if the rest cannot be given back."""
    wanted = {(some.node, gpu) for some in to.slices for gpu in some.gpus}
    kept = {part.folder: _cut(part, wanted) for part in roster.parts}
    stay = {folder for folder, part in kept.items() if part.gpus or abilities.near}
    for part in roster.parts:
        if part.folder in stay and kept[part.folder] != part and abilities.frees != "device":
            raise EngineError(f"one device of {part.node} cannot be given back without the others")
    for gang in roster.gangs if abilities.frees == "gang" else ():
        own = {part.folder for part in gang.parts} & kept.keys()
        if own & stay and not own <= stay:
            raise EngineError("nodes that were given together cannot be given back one by one")
    return tuple(kept[part.folder] for part in roster.parts if part.folder in stay)


def find_added(kept: Sequence[AttemptPart], to: Allocation) -> list[Slice]:
    """The devices of `to` that no part has."""
    have = {(part.node, gpu) for part in kept for gpu in part.gpus}
    some = (
        Slice(wanted.node, tuple(gpu for gpu in wanted.gpus if (wanted.node, gpu) not in have))
        for wanted in to.slices
    )
    return [added for added in some if added.gpus]


def number_parts(gang: Gang, first: int) -> Gang:
    """With a number for each of its ranks, from `first` on."""
    parts = []
    for part in gang.parts:
        parts.append(replace(part, numbers=tuple(range(first, first + len(part.gpus)))))
        first += len(part.gpus)
    return replace(gang, parts=tuple(parts))


def extend_part(
    roster: Roster, kept: AttemptPart, added: Sequence[Slice], epoch: int, spec: AttemptSpec
) -> PendingChange:
    """A change in which the agent of a part starts ranks on further devices, as `spec` says."""
    gpus = tuple(gpu for some in added for gpu in some.gpus)
    new = tuple(range(roster.next_number, roster.next_number + len(gpus)))
    part = replace(
        kept, gpus=kept.gpus + gpus, numbers=kept.numbers + new, cpus=spec.cpus, mem_gb=spec.mem_gb
    )
    start = {"spec": spec.as_json(), "numbers": part.numbers, "gpus": part.gpus, "new": new}
    return PendingChange(epoch, None, (part,), start=start)


def plan_gang(
    before: Roster,
    kept: tuple[AttemptPart, ...],
    job: Job,
    to: Allocation,
    attempt: int,
    epoch: int,
    site: AttemptSite,
    added: Sequence[Slice],
) -> PendingChange:
    """A change in which parts join, as a gang of their own."""
    terms = adjustment(to, "none", "")
    if not added:
        return PendingChange(epoch, None, kept, terms)
    gang = make_gang(job, to, attempt, site, added, epoch)
    named = replace(gang, job=name_extension(job.id, epoch), name=f"{gang.name}+{epoch}")
    extension = number_parts(named, before.next_number)
    return PendingChange(epoch, extension, (*kept, *extension.parts), terms)


def check_change(
    before: Roster, kept: Sequence[AttemptPart], to: Allocation, job: Job, *, several: bool
) -> None:
    """EngineError for a change that is none, or that these ranks cannot make."""
    old = numbers_of(before.parts)
    if numbers_of(kept) == old and to.gpus == len(old):
        raise EngineError("it has these devices already")
    if not several and max(len(old), to.gpus) > 1:
        raise EngineError("only a single rank is moved live on GPUs")
    limited = job.launch is not None and job.launch.time_limit_s
    if limited and (not kept or kept[0].folder != before.parts[0].folder):
        raise EngineError("its time limit is counted on the node that it would leave")


def find_emptied(roster: Roster) -> list[Gang]:
    """Gangs submitted together that have no part left after the change."""
    stay = {part.folder for part in roster.change.parts} if roster.change is not None else set()
    return [gang for gang in roster.gangs if not stay & {part.folder for part in gang.parts}]


def make_form(roster: Roster, change: PendingChange, store: str) -> GroupPlan:
    """The message to old and new ranks; the first of the old ones listens at `store`."""
    before, after = numbers_of(roster.parts), numbers_of(change.parts)
    kept = tuple(number for number in before if number in after)
    sources = (kept or before) if change.joining_ranks else ()
    nodes = len({part.node for part in change.parts})
    return GroupPlan(change.epoch, after, change.joining_ranks, sources, store, before[0], nodes)


def _cut(part: AttemptPart, wanted: set[tuple[Any, int]]) -> AttemptPart:
    both = zip(part.gpus, part.numbers, strict=False)
    stay = [(gpu, number) for gpu, number in both if (part.node, gpu) in wanted]
    if len(stay) == len(part.gpus):
        return part
    share = len(stay) / len(part.gpus)
    return replace(
        part,
        gpus=tuple(gpu for gpu, _ in stay),
        numbers=tuple(number for _, number in stay),
        cpus=part.cpus * share,
        mem_gb=part.mem_gb * share,
    )


# ---- on disk


def save_roster(folder: Path, roster: Roster) -> None:
    """Into the attempt's folder, whole or not at all."""
    change = roster.change
    body = {
        "gangs": [write_gang(gang) for gang in roster.gangs],
        "parts": [write_part(part) for part in roster.parts],
        "next": roster.next_number,
        "answer": dict(roster.answer),
        "several": roster.several,
        "change": None,
    }
    if change is not None:
        body["change"] = {
            "epoch": change.epoch,
            "extension": None if change.extension is None else write_gang(change.extension),
            "parts": [write_part(part) for part in change.parts],
            "terms": dict(change.terms),
            "start": dict(change.start),
        }
    write_whole(folder / RANKS, body)


def load_roster(folder: Path, gang: Gang) -> Roster:
    """The roster that `save_roster` wrote, or the ranks that `gang` began with."""
    body = read_json(folder / RANKS)
    if body is None:
        return begin_roster(gang)
    try:
        return Roster(
            tuple(map(read_gang, body["gangs"])),
            tuple(map(read_part, body["parts"])),
            int(body["next"]),
            _read_change(body["change"]),
            dict(body["answer"]),
            bool(body["several"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"{folder / RANKS} is not ours: {error!r}") from error


def _read_change(body: Mapping[str, Any] | None) -> PendingChange | None:
    if body is None:
        return None
    extension = body["extension"]
    return PendingChange(
        int(body["epoch"]),
        None if extension is None else read_gang(extension),
        tuple(map(read_part, body["parts"])),
        dict(body["terms"]),
        dict(body.get("start", {})),
    )
