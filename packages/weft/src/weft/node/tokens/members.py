"""Members, which of them wait, what each holds: the facts that disciplines decide on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NewType

from weft.frozen import frozen

Key = NewType("Key", int)

RECENT_S = 10.0  # a token's users are those that asked for it this lately
BEHIND_S = 1.0  # no member may save up more than this for later
SHORT_S = 0.005  # iterations below are leased several at a time
MOST = 64
MOST_WAITING, MOST_TOKENS = 64, 256  # asks of a member at once, and tokens it ever named


@dataclass(slots=True)
class TokenPace:
    """A member's use of one set of tokens: running means of its stages and of the time between."""

    stage_s: float = 0.0
    gap_s: float = 0.0
    longest_s: float = 0.0
    freed: float = 0.0

    def asked(self, now: float) -> None:
        """Note that it wants them again."""
        if self.freed:
            self.gap_s = _mean(self.gap_s, now - self.freed)

    def note_returned(self, now: float, each_s: float) -> None:
        """Note that tokens came back, after stages of this length."""
        self.stage_s = _mean(self.stage_s, each_s)
        self.longest_s = max(self.longest_s * 0.99, each_s)
        self.freed = now


@dataclass(slots=True)
class TokenMember:
    """A rank that joined, with what it used so far."""

    key: Key
    job: str
    rank: int
    tier: str
    weight: float
    joined: int
    phase: float = 0.0
    gpus: tuple[str, ...] = ()
    attained: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    used_s: dict[str, float] = field(default_factory=dict)
    held_s: dict[str, float] = field(default_factory=dict)
    paces: dict[tuple[str, ...], TokenPace] = field(default_factory=dict)
    seen: float = 0.0
    waited_s: float = 0.0
    grants: int = 0
    expired: int = 0

    def pace(self, tokens: tuple[str, ...]) -> TokenPace:
        return self.paces.setdefault(tokens, TokenPace())

    @property
    def opportunistic(self) -> bool:
        """True if it only fills what others leave."""
        return self.tier == "opportunistic"


@frozen
class TokenRequest:
    """A member that waits for tokens, all at once."""

    key: Key
    stage: int
    tokens: tuple[str, ...]
    since: float


@dataclass(slots=True)
class HeldTokens:
    """Tokens that are held."""

    request: TokenRequest
    at: float
    until: float
    endless: bool  # until it is recalled
    recalled: bool = False


class TokenState:
    """The facts. `slots` says how many may hold a token at once, one if it does not."""

    def __init__(self, slots: Mapping[str, int] | None = None) -> None:
        self.slots = dict(slots or {})
        self._whole = self
        self.members: dict[Key, TokenMember] = {}
        self.waiting: list[TokenRequest] = []
        self.grants: dict[tuple[Key, int], HeldTokens] = {}

    def restrict(self, keys: Collection[Key]) -> TokenState:
        """The facts about some members, to be read; what others hold is held here, too."""
        state = TokenState(self.slots)
        state._whole = self
        state.members = {key: member for key, member in self.members.items() if key in keys}
        state.waiting = [request for request in self.waiting if request.key in keys]
        state.grants = {at: grant for at, grant in self.grants.items() if at[0] in keys}
        return state

    def fits(self, tokens: Iterable[str]) -> bool:
        return all(self.free_places(token) > 0 for token in tokens)

    def free_places(self, token: str) -> int:
        """The number of members more that may hold it."""
        held = sum(token in grant.request.tokens for grant in self._whole.grants.values())
        return self.slots.get(token, 1) - held

    def holds(self, key: Key) -> bool:
        return any(holder == key for holder, _ in self.grants)

    def waits(self, key: Key) -> bool:
        """True if a member waits for anything."""
        return any(request.key == key for request in self.waiting)

    def rivals(self, request: TokenRequest, now: float) -> list[TokenMember]:
        """Other members that lately wanted one of these tokens."""
        return [
            member
            for member in self.members.values()
            if member.key != request.key
            and any(now - member.asked.get(token, -RECENT_S) < RECENT_S for token in request.tokens)
        ]

    def asked(self, request: TokenRequest) -> None:
        """A member begins to wait."""
        member, now = self.members[request.key], request.since
        for token in request.tokens:
            others = [rival.attained.get(token, 0.0) for rival in self.rivals(request, now)]
            least = min(others, default=0.0) - BEHIND_S
            member.attained[token] = max(member.attained.get(token, 0.0), least)
            member.asked[token] = now
        member.pace(request.tokens).asked(now)
        member.seen = now
        self.waiting.append(request)

    def too_much(self, key: Key, stage: int, tokens: tuple[str, ...]) -> str:
        """The reason why a member may not ask for this as well; empty if it may."""
        stages = [request.stage for request in self.waiting if request.key == key]
        if stage in stages or (key, stage) in self.grants:
            return f"stage {stage} was asked for before"
        if len(stages) >= MOST_WAITING:
            return f"it waits for {MOST_WAITING} stages already"
        if len(self.members[key].asked.keys() | set(tokens)) > MOST_TOKENS:
            return f"it has named {MOST_TOKENS} tokens already"
        return ""

    def granted(self, request: TokenRequest, now: float, until: float, endless: bool) -> HeldTokens:
        """A member gets what it waited for."""
        member = self.members[request.key]
        self.waiting.remove(request)
        grant = HeldTokens(request, now, until, endless)
        self.grants[request.key, request.stage] = grant
        member.waited_s += now - request.since
        member.grants += 1
        return grant

    def freed(self, grant: HeldTokens, now: float, used_s: float, uses: int) -> None:
        """A member gave back what it held; it cannot have worked for longer than that."""
        request = grant.request
        del self.grants[request.key, request.stage]
        member, held = self.members.get(request.key), now - grant.at
        if member is None:
            return
        used_s = min(max(0.0, used_s), held)  # also where it says NaN
        for token in request.tokens:
            member.attained[token] = member.attained.get(token, 0.0) + held / member.weight
            member.held_s[token] = member.held_s.get(token, 0.0) + held
            member.used_s[token] = member.used_s.get(token, 0.0) + used_s
        member.pace(request.tokens).note_returned(now, used_s / uses if uses > 0 else held)
        member.seen = now

    def iterations(self, request: TokenRequest, now: float) -> int:
        """The number of stages that one grant may cover: short ones several, alone any number.

        A member that pauses little between its stages gets as many as it is behind the others.
        One by one it could not catch up: whenever it frees, only others wait.
        """
        rivals = self.rivals(request, now)
        if not rivals:
            return 0
        member = self.members[request.key]
        pace = member.pace(request.tokens)
        if not pace.stage_s:
            return 1
        short = int(SHORT_S / max(pace.stage_s + pace.gap_s, 1e-6))
        owed = 0
        if pace.gap_s < 0.1 * pace.stage_s:
            owed = int(self._behind(member, rivals, request) * member.weight / pace.stage_s)
        return min(max(short, owed, 1), MOST)

    def _behind(
        self, member: TokenMember, rivals: list[TokenMember], request: TokenRequest
    ) -> float:
        return min(
            min(rival.attained.get(token, 0.0) for rival in rivals) - member.attained[token]
            for token in request.tokens
        )


def _mean(before: float, new: float) -> float:
    return new if not before else 0.8 * before + 0.2 * new
