"""Groups of jobs on different GPUs do not wait for each other: turns are taken within a group.

Members belong together if they share a GPU, be it through others. One that did not say where it
lives belongs to all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from weft.node.tokens.disciplines import NEVER, Discipline, Lockstep, Timeslice
from weft.node.tokens.members import Key, Request, TokenState


def within_groups(order: Discipline) -> Discipline:
    """The discipline kept within each group, if it is one that makes members wait for others."""
    return Apart(order) if isinstance(order, (Lockstep, Timeslice)) else order


class Apart:
    """The same discipline for every group, each with a memory of its own."""

    def __init__(self, like: Discipline) -> None:
        self.like = like
        self._own: dict[str, Discipline] = {}

    def next(self, now: float, book: TokenState) -> Request | None:
        """Of the first group that has a member to grant to."""
        for own, part in self._parts(book):
            if (request := own.next(now, part)) is not None:
                return request
        return None

    def iterations(self, request: Request, now: float, book: TokenState) -> int:
        """As the member's group has it."""
        for own, part in self._parts(book):
            if request.key in part.members:
                return own.iterations(request, now, part)
        return 1

    def recalls(self, now: float, book: TokenState) -> Iterable[Key]:
        """Of all groups."""
        return [key for own, part in self._parts(book) for key in own.recalls(now, part)]

    def wake_at(self, now: float, book: TokenState) -> float:
        """The earliest of all groups."""
        return min((own.wake_at(now, part) for own, part in self._parts(book)), default=NEVER)

    def _parts(self, book: TokenState) -> Iterator[tuple[Discipline, TokenState]]:
        groups = together(book)
        for name in self._own.keys() - groups.keys():
            del self._own[name]
        for name, keys in groups.items():
            if name not in self._own:
                self._own[name] = copy.deepcopy(self.like)
            yield self._own[name], book if len(groups) == 1 else book.part(keys)


def together(book: TokenState) -> dict[str, set[Key]]:
    """Members by the first GPU of their group."""
    groups: list[tuple[set[str], set[Key]]] = []
    everywhere = {gpu for member in book.members.values() for gpu in member.gpus}
    for member in book.members.values():
        gpus, keys = set(member.gpus) or everywhere, {member.key}
        apart = []
        for group in groups:
            if group[0].isdisjoint(gpus) and group[0] and gpus:
                apart.append(group)
            else:
                gpus, keys = gpus | group[0], keys | group[1]
        groups = [*apart, (gpus, keys)]
    return {min(gpus, default=""): keys for gpus, keys in groups}
