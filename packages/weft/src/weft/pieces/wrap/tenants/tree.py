"""Tenants and their groups: what each has of its own, and which jobs are within it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.plan.view import View
from weft.core.state.table import Rows
from weft.frozen import frozen

SLACK = 1e-9


@frozen
class TenantTree:
    """GPUs of tenants and groups; a group without a number has the sum of its members'."""

    own: Mapping[str, float]
    parents: Mapping[str, str]
    _lines: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)
    _quotas: dict[str, float] = field(default_factory=dict, repr=False, compare=False)
    _depths: list[int] = field(default_factory=list, repr=False, compare=False)

    @property
    def depth(self) -> int:
        """Levels that a tenant can be within: its own, its group's, and so on."""
        if not self._depths:
            lines = (len(self.line(who)) for who in {*self.own, *self.parents})
            self._depths.append(max(lines, default=1))
        return self._depths[0]

    def line(self, who: str) -> tuple[str, ...]:
        line = self._lines.get(who)
        if line is None:
            above = (self.line(self.parents[who])) if who in self.parents else ()
            line = self._lines[who] = (who, *above)
        return line

    def quota(self, who: str) -> float:
        """GPUs of its own."""
        quota = self._quotas.get(who)
        if quota is None:
            members = (member for member, parent in self.parents.items() if parent == who)
            quota = self.own[who] if who in self.own else sum(map(self.quota, members))
            self._quotas[who] = quota
        return quota

    def add_up(self, held: Mapping[str, float]) -> HeldGpus:
        """GPUs held, counted for groups as well."""
        total = HeldGpus(self)
        for who, gpus in held.items():
            total.add(who, gpus)
        return total


class HeldGpus:
    """GPUs that tenants hold, and their groups with them."""

    def __init__(self, tree: TenantTree) -> None:
        self._tree = tree
        self._gpus: defaultdict[str, float] = defaultdict(float)

    def add(self, who: str, gpus: float) -> None:
        """A tenant holds that many more, or fewer."""
        for name in self._tree.line(who):
            self._gpus[name] += gpus

    def level(self, who: str, more: float = 0.0) -> int:
        """The levels to go up to be within what is one's own; beyond all where one never is."""
        for level, name in enumerate(self._tree.line(who)):
            if self._gpus.get(name, 0.0) + more <= self._tree.quota(name) + SLACK:
                return level
        return sys.maxsize

    def beyond(self, who: str, level: int) -> float:
        """GPUs that a tenant holds beyond its own, and its groups up to `level` beyond theirs."""
        tree = self._tree
        line = tree.line(who)[: level + 1]
        return min(self._gpus.get(name, 0.0) - tree.quota(name) for name in line)


def read_tree(own: Mapping[str, float], parents: Mapping[str, str]) -> TenantTree:
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
    return TenantTree(dict(own), dict(parents))


def held_by_tenant(view: View) -> defaultdict[str, float]:
    """GPUs that each tenant's jobs hold, of any kind."""
    held: defaultdict[str, float] = defaultdict(float)
    for (tenant, _), gpus in view.held_by_tenants().items():
        held[tenant] += gpus
    return held


def number_tenants(view: View) -> tuple[list[str], Rows]:
    """All tenants with jobs, and the number of each row's."""
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(job.tenant, len(numbers)) for job in view.table.jobs]
    return list(numbers), np.array(rows, dtype=np.intp)
