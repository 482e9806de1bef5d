"""Machines as Pollux sees them: nodes of one size, whatever their kind.

Larger machines are shown in parts of the size of the smallest. A part stands for given devices,
so what a job holds says by itself which parts it is on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.core.model.cluster import Cluster
from weft.core.model.job import EXCLUSIVE, Allocation, Config, Job, Sharing
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft_papers.pollux.genetic import Counts


@frozen
class MachinePart:
    """The devices `gpus` of machine `node`, which no job outside the view holds."""

    name: str
    node: int
    kind: str
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class MachineParts:
    """All parts, in the order of the cluster."""

    parts: tuple[MachinePart, ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, view: View) -> MachineParts:
        nodes = view.cluster.nodes
        size = min(node.gpus for node in nodes)
        open_on = _open_devices(view)
        parts = [
            MachinePart(
                f"{node.id}/{at}",
                i,
                node.kind,
                tuple(gpu for gpu in open_on[i] if at <= gpu < at + size),
            )
            for i, node in enumerate(nodes)
            for at in range(0, node.gpus, size)
        ]
        return cls(tuple(parts), view.cluster.kinds)

    @cached_property
    def capacity(self) -> Counts:
        """Devices of each part."""
        return np.array([len(part.gpus) for part in self.parts], dtype=np.float32)

    @cached_property
    def of_kind(self) -> Bools:
        """Parts x kinds: which is which."""
        return np.array([[part.kind == kind for kind in self.kinds] for part in self.parts])

    @cached_property
    def smallest(self) -> int:
        """GPUs of the kind there are fewest of."""
        return int((self.capacity @ self.of_kind).min())

    def held(self, view: View) -> Counts:
        """Rows x parts: devices that each row holds, those shared with jobs out of sight apart."""
        at = {(p.node, gpu): i for i, p in enumerate(self.parts) for gpu in p.gpus}
        counts = np.zeros((len(view.table), len(self.parts)), dtype=np.float32)
        for row, on in enumerate(view.table.allocations):
            for piece in on.slices if on is not None else ():
                node = view.cluster.index[piece.node]
                for gpu in piece.gpus:
                    if (node, gpu) in at:
                        counts[row, at[node, gpu]] += 1
        return counts

    def allowed(self, view: View) -> Bools:
        """Rows x parts: whether a job takes the part's kind."""
        allowed = np.ones((len(view.table), len(self.parts)), dtype=bool)
        for row, job in enumerate(view.table.jobs):
            if job.demand.kinds:
                allowed[row] = [part.kind in job.demand.kinds for part in self.parts]
        return allowed

    def one_kind(self, counts: Counts, order: tuple[str, ...]) -> Counts:
        """Each row on the kind it has most of only; between equals the earlier in `order`."""
        rank = [order.index(kind) if kind in order else len(order) for kind in self.kinds]
        total = counts @ self.of_kind
        chosen = (total - np.array(rank) / (1.0 + len(order))).argmax(axis=1)
        kept: Counts = counts * self.of_kind[:, chosen].T
        return kept

    def count_kinds(self, cluster: Cluster, counts: Counts) -> dict[int, Config]:
        """Kind and number of devices of each row that has any, wherever they are."""
        totals = counts @ self.of_kind
        configs: dict[int, Config] = {}
        for row in np.flatnonzero(totals.any(axis=1)).tolist():
            kind, gpus = self.kinds[int(totals[row].argmax())], int(totals[row].max())
            configs[row] = Config(kind, -(-gpus // cluster.node_size(kind)), gpus)
        return configs

    def first_fit(self, counts: Counts, row: int, need: int, allowed: Bools) -> bool:
        """Put `need` replicas of a row where there is room, on few parts of one kind; in place."""
        room = np.where(allowed[row], self.capacity - counts.sum(axis=0), 0)
        for kind in range(len(self.kinds)):
            left = np.where(self.of_kind[:, kind], room, 0)
            if left.sum() < need:
                continue
            fitting = left >= need
            if fitting.any():
                counts[row, np.where(fitting, left, np.inf).argmin()] = need
                return True
            for part in np.argsort(-left, kind="stable"):
                taken = min(int(left[part]), need)
                counts[row, part] = taken
                need -= taken
            return True
        return False

    def place(self, view: View, held: Counts, wanted: Counts) -> dict[int, Allocation | None]:
        """Return new allocations of the rows that differ; the others keep their devices."""
        changed = (held != wanted).any(axis=1)
        taken = {
            (view.cluster.index[piece.node], gpu)
            for row, on in enumerate(view.table.allocations)
            if on is not None and not changed[row]
            for piece in on.slices
            for gpu in piece.gpus
        }
        free = [[g for g in part.gpus if (part.node, g) not in taken] for part in self.parts]
        placed: dict[int, Allocation | None] = {}
        for row in np.flatnonzero(changed).tolist():
            masks: dict[int, int] = {}
            for part in np.flatnonzero(wanted[row]):
                node = self.parts[part].node
                for _ in range(int(wanted[row, part])):
                    masks[node] = masks.get(node, 0) | 1 << free[part].pop(0)
            placed[row] = _build(view, view.job(row), masks) if masks else None
        return placed


def _build(view: View, job: Job, masks: dict[int, int]) -> Allocation:
    share = job.demand.share
    slices = tuple(view.free.slice_of(node, mask, share) for node, mask in sorted(masks.items()))
    return Allocation(slices, EXCLUSIVE if share == 1.0 else Sharing(share=share))


def _open_devices(view: View) -> list[tuple[int, ...]]:
    """Devices of each node that are free, or held by rows of the view."""
    ledger = view.free
    mark = ledger.mark()
    for on in view.table.allocations:
        if on is not None:
            ledger.give(on)
    open_devices = [ledger.slice(i, ledger.on(i)).gpus for i in range(len(view.cluster.nodes))]
    ledger.rollback(mark)
    return open_devices
