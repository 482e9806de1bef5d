"""The coordinator as a state machine: a message and a time in, messages out."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from weft.base import tokens as wire
from weft.base.errors import WireError
from weft.node.tokens.disciplines import NEVER, TokenDiscipline
from weft.node.tokens.members import (
    MOST_TOKENS,
    HeldTokens,
    Key,
    TokenMember,
    TokenRequest,
    TokenState,
)

Out = list[tuple[Key, wire.FromCoordinator]]

LEASE_S = 1.0  # how long a lease without end may be used before it is asked for again
FIRST_S = 60.0  # patience with a member whose stages have not been seen yet, and with anyone
LEAST_S = 2.0
LIGHTEST, HEAVIEST = 1e-3, 1e3  # weights
TIMES = 4.0  # patience with the others: that many times their longest stage


class Coordinator:
    """Grants tokens to members as its discipline says. Knows neither clock nor sockets."""

    def __init__(self, discipline: TokenDiscipline, slots: Mapping[str, int] | None = None) -> None:
        self.book = TokenState(slots)
        self._discipline = discipline
        self._joined = 0
        self._began: float | None = None
        self._alive_at = NEVER
        self._turned = 0.0

    def handle(self, now: float, key: Key, message: wire.FromMember) -> Out:
        """A member said something."""
        self._began = now if self._began is None else self._began
        if isinstance(message, wire.Inspect):
            return self._seen(now, key)
        if isinstance(message, wire.Join):
            self._join(now, key, message)
            return []
        if key not in self.book.members:
            raise WireError(f"{type(message).__name__.lower()} before join")
        if isinstance(message, wire.Ask):
            return self._ask(now, key, message)
        return self._free(now, key, message)

    def lost(self, now: float, key: Key) -> Out:
        """A member's connection ended; what it held is free."""
        book = self.book
        book.waiting = [request for request in book.waiting if request.key != key]
        for grant in [g for (holder, _), g in book.grants.items() if holder == key]:
            book.freed(grant, now, now - grant.at, 1)
        book.members.pop(key, None)
        return self._turns(now)

    def tick(self, now: float) -> Out:
        """Time has passed: leases end, slices end, waiting members hear that we live."""
        out: Out = []
        for grant in [g for g in self.book.grants.values() if g.until <= now]:
            self.book.members[grant.request.key].expired += 1
            self.book.freed(grant, now, now - grant.at, 1)
            out.append((grant.request.key, wire.Expired(grant.request.stage)))
        if now >= self._alive_at:
            out += [(key, wire.Alive()) for key in {request.key for request in self.book.waiting}]
            self._alive_at = now + wire.ALIVE_S if self.book.waiting else NEVER
        return out + self._turns(now)

    @property
    def wake_at(self) -> float:
        """The time at which `tick` must be called next: at once where it is past.

        The discipline is asked as of its last turn. What it waits for may have come since then, and
        a later time would take it for done.
        """
        ends = [grant.until for grant in self.book.grants.values()]
        return min([*ends, self._alive_at, self._discipline.wake_at(self._turned, self.book)])

    def _join(self, now: float, key: Key, message: wire.Join) -> None:
        self._joined += 1
        meant = isfinite(message.weight) and message.weight > 0
        weight = min(max(message.weight, LIGHTEST), HEAVIEST) if meant else 1.0
        phase = message.phase if isfinite(message.phase) else 0.0
        self.book.members[key] = TokenMember(
            key,
            message.job,
            message.rank,
            message.tier,
            weight,
            self._joined,
            phase,
            message.gpus[:MOST_TOKENS],
            seen=now,
        )

    def _ask(self, now: float, key: Key, message: wire.Ask) -> Out:
        if not message.tokens:
            raise WireError("an ask names no tokens")
        if why := self.book.too_much(key, message.stage, message.tokens):
            raise WireError(why)
        self.book.asked(TokenRequest(key, message.stage, message.tokens, now))
        if self._alive_at == NEVER:
            self._alive_at = now + wire.ALIVE_S
        return self._turns(now)

    def _free(self, now: float, key: Key, message: wire.Free) -> Out:
        grant = self.book.grants.get((key, message.stage))
        if grant is None:
            return []  # it had expired
        self.book.freed(grant, now, message.used_s, message.iterations)
        return self._turns(now)

    def _turns(self, now: float) -> Out:
        out: Out = []
        self._turned = now
        while (request := self._discipline.next(now, self.book)) is not None:
            out.append((request.key, self._grant(now, request)))
        for key in self._discipline.leases_to_end(now, self.book):
            for grant in self._leases(key):
                grant.recalled = True
                out.append((key, wire.Recall(grant.request.stage)))
        for grant in self._crossed():
            grant.recalled = True
            out.append((grant.request.key, wire.Recall(grant.request.stage)))
        return out

    def _grant(self, now: float, request: TokenRequest) -> wire.Granted:
        pace = self.book.members[request.key].pace(request.tokens)
        iterations = self._discipline.iterations(request, now, self.book)
        patience = max(TIMES * pace.longest_s, LEAST_S) if pace.longest_s else FIRST_S
        patience = min(patience, FIRST_S)
        expected = 2.0 * iterations * (pace.stage_s + pace.gap_s)
        for_s = LEASE_S if iterations == 0 else min(max(expected, LEASE_S), FIRST_S)
        self.book.granted(request, now, now + for_s + patience, endless=iterations == 0)
        return wire.Granted(request.stage, iterations, for_s)

    def _leases(self, key: Key) -> list[HeldTokens]:
        """A member's endless leases that were not called back yet."""
        return [
            grant
            for (holder, _), grant in self.book.grants.items()
            if holder == key and grant.endless and not grant.recalled
        ]

    def _crossed(self) -> list[HeldTokens]:
        """Tokens that waiting members hold between two stages while others wait for them.

        Two that each want the other's would wait until their leases expire.
        """
        wanted = {token for request in self.book.waiting for token in request.tokens}
        return [
            grant
            for (holder, _), grant in self.book.grants.items()
            if not grant.recalled
            and self.book.waits(holder)
            and not wanted.isdisjoint(grant.request.tokens)
        ]

    def _seen(self, now: float, key: Key) -> Out:
        out: Out = []
        for member in self.book.members.values():
            values = {
                "waited_s": member.waited_s,
                "grants": float(member.grants),
                "expired": float(member.expired),
            }
            values |= {f"used_s.{token}": s for token, s in member.used_s.items()}
            values |= {f"held_s.{token}": s for token, s in member.held_s.items()}
            out.append((key, wire.Inspected(member.job, member.rank, values)))
        up_s = now - (self._began if self._began is not None else now)
        end = {"members": float(len(self.book.members)), "up_s": up_s}
        return [*out, (key, wire.Inspected("", 0, end))]
