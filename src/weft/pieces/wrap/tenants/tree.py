"""Tenants and their groups: what each has of its own, and who is within it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.errors import InvalidConfig

SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Tree:
    """GPUs of tenants and groups; a group without a number has the sum of its members'."""

    own: Mapping[str, float]
    parents: Mapping[str, str]

    @property
    def depth(self) -> int:
        """Levels that anybody can be within: its own, its group's, and so on."""
        return max((len(self.line(who)) for who in {*self.own, *self.parents}), default=1)

    def line(self, who: str) -> list[str]:
        """A tenant, its group, and that one's."""
        found = [who]
        while found[-1] in self.parents:
            found.append(self.parents[found[-1]])
        return found

    def quota(self, who: str) -> float:
        """GPUs of its own."""
        if who in self.own:
            return self.own[who]
        return sum(self.quota(one) for one, parent in self.parents.items() if parent == who)

    def level(self, who: str, held: Mapping[str, float], more: float = 0.0) -> int:
        """How far up one must go to be within what is one's own; `depth` where one never is."""
        for level, name in enumerate(self.line(who)):
            if self._held(name, held) + more <= self.quota(name) + SLACK:
                return level
        return self.depth

    def beyond(self, who: str, held: Mapping[str, float], level: int) -> float:
        """GPUs that a tenant holds beyond its own, and its groups up to `level` beyond theirs."""
        line = self.line(who)[: level + 1]
        return min(self._held(name, held) - self.quota(name) for name in line)

    def _held(self, name: str, held: Mapping[str, float]) -> float:
        return sum(gpus for who, gpus in held.items() if name in self.line(who))


def read_tree(own: Mapping[str, float], parents: Mapping[str, str]) -> Tree:
    """Checked: numbers that are some, and groups that do not contain themselves."""
    for who, gpus in own.items():
        if not who or not gpus >= 0.0:
            raise InvalidConfig(
                f"quota {who}={gpus:g} is not a number of GPUs", hint="for example vision=8"
            )
    for who in parents:
        seen, at = {who}, who
        while at in parents:
            at = parents[at]
            if at in seen:
                raise InvalidConfig(f"tenant {who!r} is in a group that is in itself")
            seen.add(at)
    return Tree(dict(own), dict(parents))
