"""Bindings of a virtual cluster's cells to physical cells during one decision."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from weft_papers.hived.assignment import CellLayout, Owned
from weft_papers.hived.cells import Cell, FreeCells

Device = tuple[int, int]  # chain, number among all its devices


@dataclass
class CellBindings:
    """Free cells of every chain, and where the cells of virtual clusters are.

    A cell is bound while a job uses it; where it was bound last is taken again if nothing
    speaks against that. `borrowed` are devices that jobs without a claim run on, sorted.
    """

    layout: CellLayout
    free: list[FreeCells]
    bound: dict[str, Cell] = field(default_factory=dict)
    last: dict[str, Cell] = field(default_factory=dict)
    borrowed: dict[int, list[int]] = field(default_factory=dict)
    doomed: set[str] = field(default_factory=set)
    _at: dict[tuple[int, Cell], Owned] = field(default_factory=dict)
    _wanted: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._wanted = [list(counts) for counts in self.layout.wanted]
        for owned in self.layout.owned:
            if owned.pinned is not None and self.free[owned.chain].take_cell(owned.pinned):
                self._note(owned, owned.pinned)

    def of(self, tenant: str) -> tuple[Owned, ...]:
        return self.layout.by_tenant.get(tenant, ())

    def unbound(self, chain: int) -> list[int]:
        """Cells of each level that virtual clusters may still ask for."""
        return list(self._wanted[chain])

    def owner_at(self, chain: int, device: int) -> Owned | None:
        """The cell of a virtual cluster that a device is bound to."""
        cells = self.layout.chains[chain]
        for level in range(len(cells.fan)):
            cell = cells.at(level, device)
            if cell is not None and (owned := self._at.get((chain, cell))) is not None:
                return owned
        return None

    def bind_at(self, owned: Owned, cell: Cell) -> bool:
        """Bind a cell to a certain place, if all others can still be bound."""
        if not self.free[owned.chain].take_cell(cell, self._others(owned)):
            return False
        self._note(owned, cell)
        return True

    def bind(self, owned: Owned) -> bool:
        """Bind a cell: to its last place if that is idle, else by the buddy rule."""
        if owned.name in self.bound:
            return True
        free, before = self.free[owned.chain], self.last.get(owned.name)
        idle = (
            before is not None and not free.is_bad(before) and not self._cost(owned.chain, before)
        )
        if before is not None and idle and self.bind_at(owned, before):
            return True
        cost = (
            (lambda cell: self._cost(owned.chain, cell)) if self.borrowed.get(owned.chain) else None
        )
        bound = free.allocate(owned.level, self._others(owned), cost)
        if bound is None:
            return False
        self._note(owned, bound)
        return True

    def unbind_bad(self, tenant: str) -> None:
        """Bind cells that only bad hardware is left for to that, so that no plan counts on them.

        As many as a virtual cluster could ask for beyond what is healthy.
        """
        if not any(free.has_bad for free in self.free):
            return
        asked: dict[tuple[int, int], list[Owned]] = defaultdict(list)
        for owned in self.of(tenant):
            if owned.name not in self.bound:
                asked[owned.chain, owned.level].append(owned)
        for (chain, level), cells in sorted(asked.items(), reverse=True):
            free = self.free[chain]
            bad = free.bad_free(level)
            beyond = len(cells) - (free.available(level) - len(bad)) if bad else 0
            for owned in reversed(cells[-beyond:] if beyond > 0 else []):
                if self._doom_one(owned, bad):
                    self.doomed.add(owned.name)

    def _doom_one(self, owned: Owned, bad: list[int]) -> bool:
        """The last place first: a machine that is away belongs to the cell that was there."""
        before = self.last.get(owned.name)
        first = [before[1]] if before is not None and before[1] in bad else []
        return any(self.bind_at(owned, (owned.level, number)) for number in [*first, *bad])

    def _others(self, owned: Owned) -> list[int]:
        wanted = self.unbound(owned.chain)
        wanted[owned.level] -= 1
        return wanted

    def _note(self, owned: Owned, cell: Cell) -> None:
        if owned.pinned is None:
            self._wanted[owned.chain][owned.level] -= 1
        self.bound[owned.name] = cell
        self._at[owned.chain, cell] = owned

    def _cost(self, chain: int, cell: Cell) -> float:
        """Devices that a job would have to leave."""
        taken = self.borrowed.get(chain)
        if not taken:
            return 0.0
        devices = self.layout.chains[chain].devices(cell)
        return bisect_left(taken, devices.stop) - bisect_left(taken, devices.start)


def write_places(layout: CellLayout, places: Mapping[str, Cell]) -> dict[str, str]:
    """Places by name, as the first device: `NODE:GPU`; those of pinned cells are known."""
    texts = {}
    for name, cell in places.items():
        owned = layout.by_name[name]
        if owned.pinned is None:
            chain = layout.chains[owned.chain]
            node, gpu = divmod(chain.first(cell), chain.node_size)
            texts[name] = f"{layout.machines[owned.chain][node][0]}:{gpu}"
    return texts


def read_place(layout: CellLayout, owned: Owned, text: str) -> Cell | None:
    """Read what `write_places` wrote; None if there is no such cell any more."""
    node, _, gpu = text.rpartition(":")
    at = layout.home.get(node)
    if at is None or at[0] != owned.chain or not gpu.isdecimal():
        return None
    chain = layout.chains[owned.chain]
    device = at[1] * chain.node_size + int(gpu)
    cell = chain.at(owned.level, device)
    return cell if cell is not None and chain.first(cell) == device else None
