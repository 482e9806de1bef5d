"""Disciplines: small classes that each answer which member goes next.

lockstep         Muri: all do one stage, a barrier, then all the next
work-conserving  a free token goes to the member that used it least; nothing idles that is wanted
timeslice        Gandiva: one job has everything for a while, then the next
paced            AntMan: opportunistic jobs use what guaranteed ones leave, up to a duty cycle
none             no turns at all

Members belong together if they share a GPU, be it through others. One that did not say where it
lives belongs to all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Protocol

from weft.node.errors import NodeError
from weft.node.tokens.members import Key, TokenMember, TokenRequest, TokenState

NEVER = float("inf")
GRAIN_US = 50.0  # AntMan's: what the pacing of launches is not told apart from
PATIENCE_S = 0.25  # a gang that waits longer is kept free for
Place = tuple[float, int]


def idle_us(run_us: float, percent: float, slept_us: float = 0.0) -> float:
    """AntMan's pause after a stage of `run_us`, `slept_us` of it asleep, to keep a share of time.

    Infinite for a share of 0: the job is suspended.
    """
    if percent >= 100.0:
        return 0.0
    if percent <= 0.0:
        return NEVER
    return max((run_us - slept_us) * 100.0 / percent - run_us - GRAIN_US, 0.0)


class TokenDiscipline(Protocol):
    """Decides on the facts; may remember whose turn it is."""

    def next(self, now: float, book: TokenState) -> TokenRequest | None:
        """The waiting request to grant now, or None; asked again until it is None."""
        ...

    def iterations(self, request: TokenRequest, now: float, book: TokenState) -> int:
        """Stages that one grant may cover; 0 is until it is recalled."""
        ...

    def leases_to_end(self, now: float, book: TokenState) -> Iterable[Key]:
        """Members whose endless leases should end."""
        ...

    def wake_at(self, now: float, book: TokenState) -> float:
        """The time to ask again even if nothing happens."""
        ...


@dataclass(slots=True)
class WorkConserving:
    """The member that used a token least goes first, weights considered."""

    def next(self, now: float, book: TokenState) -> TokenRequest | None:
        """In order of use; a gang that waits for several tokens is not starved by others."""
        kept: set[str] = set()
        for request in sorted(book.waiting, key=lambda r: _used(r, book)):
            if kept.isdisjoint(request.tokens) and book.fits(request.tokens):
                return request
            if len(request.tokens) > 1 and now - request.since > PATIENCE_S:
                kept.update(request.tokens)
        return None

    def iterations(self, request: TokenRequest, now: float, book: TokenState) -> int:
        """Several where stages are short."""
        return book.iterations(request, now)

    def leases_to_end(self, _now: float, book: TokenState) -> Iterable[Key]:
        """Members that hold a token for which others wait."""
        wanted = {token for request in book.waiting for token in request.tokens}
        return [
            key
            for (key, _), grant in book.grants.items()
            if grant.endless and not wanted.isdisjoint(grant.request.tokens)
        ]

    def wake_at(self, now: float, book: TokenState) -> float:
        """The time at which a waiting gang loses its patience."""
        gangs = [r.since + PATIENCE_S for r in book.waiting if len(r.tokens) > 1]
        return min((at for at in gangs if at > now), default=NEVER)


@dataclass(slots=True)
class Paced:
    """Guaranteed jobs first; opportunistic ones use a token no more of the time than their weight.

    Beside a guaranteed job that is at most `duty`.
    """

    duty: float = 0.5
    _inner: WorkConserving = field(default_factory=WorkConserving)

    def next(self, now: float, book: TokenState) -> TokenRequest | None:
        """An opportunistic job goes only where no guaranteed one waits."""
        wanted = {
            token
            for request in book.waiting
            if not book.members[request.key].opportunistic
            for token in request.tokens
        }
        for request in sorted(book.waiting, key=lambda r: self._order(r, book)):
            member = book.members[request.key]
            held_back = member.opportunistic and (
                now < self._earliest(request, now, book) or not wanted.isdisjoint(request.tokens)
            )
            if not held_back and book.fits(request.tokens):
                return request
        return None

    def iterations(self, request: TokenRequest, now: float, book: TokenState) -> int:
        """One at a time for opportunistic jobs, so that they give way soon."""
        return 1 if book.members[request.key].opportunistic else book.iterations(request, now)

    def leases_to_end(self, now: float, book: TokenState) -> Iterable[Key]:
        return self._inner.leases_to_end(now, book)

    def wake_at(self, now: float, book: TokenState) -> float:
        """The time at which an opportunistic job has paused for long enough."""
        pauses = [self._earliest(request, now, book) for request in book.waiting]
        return min((at for at in pauses if at > now), default=NEVER)

    def _order(
        self, request: TokenRequest, book: TokenState
    ) -> tuple[bool, tuple[float, float, int]]:
        return book.members[request.key].opportunistic, _used(request, book)

    def _earliest(self, request: TokenRequest, now: float, book: TokenState) -> float:
        """After a stage it pauses until the stage was no more than its part of the time."""
        member = book.members[request.key]
        pace = member.pace(request.tokens)
        if not member.opportunistic or not pace.freed:
            return 0.0
        beside = any(not rival.opportunistic for rival in book.rivals(request, now))
        part = min(member.weight, self.duty if beside else 1.0)
        return pace.freed + 1e-6 * idle_us(1e6 * pace.stage_s, 100.0 * part)


@dataclass(slots=True)
class Timeslice:
    """One job has all tokens for `quantum_s` seconds, then the next in the order of joining."""

    quantum_s: float = 1.0
    _active: Key | None = None
    _since: float = 0.0

    def next(self, now: float, book: TokenState) -> TokenRequest | None:
        if self._over(now, book):
            self._turn(now, book)
        for request in book.waiting:
            if request.key == self._active and book.fits(request.tokens):
                return request
        return None

    def iterations(self, _request: TokenRequest, _now: float, _book: TokenState) -> int:
        """Return 0: the member trains until its slice is over."""
        return 0

    def leases_to_end(self, now: float, book: TokenState) -> Iterable[Key]:
        """The active job at the end of its slice, if there is another."""
        over = now >= self._since + self.quantum_s and len(book.members) > 1
        return [self._active] if self._active is not None and over else []

    def wake_at(self, now: float, book: TokenState) -> float:
        end = self._since + self.quantum_s
        return end if len(book.members) > 1 and end > now else NEVER

    def _over(self, now: float, book: TokenState) -> bool:
        if self._active not in book.members:
            return True
        late = now >= self._since + self.quantum_s
        return late and not book.holds(self._active) and len(book.members) > 1

    def _turn(self, now: float, book: TokenState) -> None:
        keys = list(book.members)
        if not keys:
            self._active = None
            return
        later = [key for key in keys if self._active is not None and key > self._active]
        self._active, self._since = (later or keys)[0], now


@dataclass(slots=True)
class Lockstep:
    """A slot begins when all members wait, and ends when all that were let in are done.

    Those that want the same token get it one after the other in the order of their phases, which is
    that of joining where none was assigned, and begin again with the first. A member that says
    nothing for `patience_s` (it evaluates, or saves) is not waited for.
    """

    patience_s: float = 2.0
    _slot: list[TokenRequest] = field(default_factory=list)
    _last: dict[str, Place] = field(default_factory=dict)

    def next(self, now: float, book: TokenState) -> TokenRequest | None:
        """The rest of the slot; a new slot only at the barrier."""
        self._slot = [request for request in self._slot if request in book.waiting]
        if not self._slot:
            if book.grants or not self._all_wait(now, book):
                return None
            self._slot = self._chosen(book)
        return self._slot.pop(0) if self._slot else None

    def iterations(self, _request: TokenRequest, _now: float, _book: TokenState) -> int:
        return 1

    def leases_to_end(self, _now: float, _book: TokenState) -> Iterable[Key]:
        """None: no lease covers more than one stage."""
        return []

    def wake_at(self, now: float, book: TokenState) -> float:
        """The time at which a silent member is no longer waited for."""
        ends = [m.seen + self.patience_s for m in book.members.values() if not book.waits(m.key)]
        return min((at for at in ends if at > now), default=NEVER) if book.waiting else NEVER

    def _all_wait(self, now: float, book: TokenState) -> bool:
        return bool(book.waiting) and all(
            book.waits(member.key) or now - member.seen >= self.patience_s
            for member in book.members.values()
        )

    def _chosen(self, book: TokenState) -> list[TokenRequest]:
        chosen: list[TokenRequest] = []
        taken: dict[str, int] = {}
        for request in sorted(book.waiting, key=lambda r: self._order(r, book)):
            if all(book.free_places(token) > taken.get(token, 0) for token in request.tokens):
                chosen.append(request)
                for token in request.tokens:
                    taken[token] = taken.get(token, 0) + 1
        for request in chosen:
            self._last.update(dict.fromkeys(request.tokens, _place(book.members[request.key])))
        return chosen

    def _order(self, request: TokenRequest, book: TokenState) -> tuple[bool, Place]:
        """Round robin: first the member after the one that had the token last."""
        place = _place(book.members[request.key])
        last = self._last.get(request.tokens[0])
        return last is not None and place <= last, place


@dataclass(slots=True)
class NoTurns:
    """All members go at once."""

    def next(self, _now: float, book: TokenState) -> TokenRequest | None:
        return book.waiting[0] if book.waiting else None

    def iterations(self, _request: TokenRequest, _now: float, _book: TokenState) -> int:
        return 0

    def leases_to_end(self, _now: float, _book: TokenState) -> Iterable[Key]:
        return []

    def wake_at(self, _now: float, _book: TokenState) -> float:
        return NEVER


DISCIPLINES: dict[str, Callable[..., TokenDiscipline]] = {
    "lockstep": Lockstep,
    "work-conserving": WorkConserving,
    "timeslice": Timeslice,
    "paced": Paced,
    "none": NoTurns,
}


def discipline(text: str) -> TokenDiscipline:
    """Build a discipline by name, with parameters as in `timeslice:quantum_s=0.5`."""
    name, _, rest = text.partition(":")
    if name not in DISCIPLINES:
        close = get_close_matches(name, DISCIPLINES, n=1)
        raise NodeError(
            f"no discipline named {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
            hint=f"there are {', '.join(DISCIPLINES)}",
        )
    made = DISCIPLINES[name]()
    known = [f.name for f in fields(made) if not f.name.startswith("_")]  # type: ignore[arg-type]
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if key not in known or number <= 0.0:
            raise NodeError(
                f"discipline {name!r}: cannot use {pair!r}",
                hint=f"parameters are positive numbers: {', '.join(known) or 'none'}",
            )
        setattr(made, key, number)
    return made


def _place(member: TokenMember) -> Place:
    """The place of a member in the order of a period."""
    return member.phase, member.joined


def _used(request: TokenRequest, book: TokenState) -> tuple[float, float, int]:
    """The rank of a request: use of its tokens so far, then waiting time, then seniority."""
    member = book.members[request.key]
    most = max(member.attained.get(token, 0.0) for token in request.tokens)
    return most, request.since, member.joined


def within_groups(order: TokenDiscipline) -> TokenDiscipline:
    """The discipline kept within each group, if it is one that makes members wait for others."""
    return Apart(order) if isinstance(order, (Lockstep, Timeslice)) else order


class Apart:
    """One discipline for every group, each with a memory of its own."""

    def __init__(self, like: TokenDiscipline) -> None:
        self.like = like
        self._own: dict[str, TokenDiscipline] = {}

    def next(self, now: float, book: TokenState) -> TokenRequest | None:
        """Return the next grant, of the first group that has a member to grant to."""
        for own, part in self._parts(book):
            if (request := own.next(now, part)) is not None:
                return request
        return None

    def iterations(self, request: TokenRequest, now: float, book: TokenState) -> int:
        """Return the iterations that the member's group allows."""
        for own, part in self._parts(book):
            if request.key in part.members:
                return own.iterations(request, now, part)
        return 1

    def leases_to_end(self, now: float, book: TokenState) -> Iterable[Key]:
        return [key for own, part in self._parts(book) for key in own.leases_to_end(now, part)]

    def wake_at(self, now: float, book: TokenState) -> float:
        """The earliest of all groups."""
        return min((own.wake_at(now, part) for own, part in self._parts(book)), default=NEVER)

    def _parts(self, book: TokenState) -> Iterator[tuple[TokenDiscipline, TokenState]]:
        groups = together(book)
        for name in self._own.keys() - groups.keys():
            del self._own[name]
        for name, keys in groups.items():
            if name not in self._own:
                self._own[name] = copy.deepcopy(self.like)
            yield self._own[name], book if len(groups) == 1 else book.restrict(keys)


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
