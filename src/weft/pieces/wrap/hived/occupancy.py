"""Who holds which devices as a decision begins, in the numbers of cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, NodeId
from weft.core.plan.view import View
from weft.pieces.wrap.hived.assignment import Layout
from weft.pieces.wrap.hived.bindings import Device
from weft.pieces.wrap.hived.cells import FreeCells


class Occupancy:
    """Devices of every running row, and those of jobs that are not shown.

    `blocked` are bit masks by position of a node in the cluster. `hosts` is a machine of each
    chain, the one with the smallest host: what any cell can count on.
    """

    def __init__(self, view: View, layout: Layout) -> None:
        self._view, self._layout = view, layout
        self.rows: dict[int, list[Device]] = {}
        for row in np.flatnonzero(view.running()).tolist():
            on = view.allocation(row)
            assert on is not None
            self.rows[row] = self.devices(on)
        self.blocked = self._find_blocked()
        self.hosts = self._find_hosts()

    def devices(self, on: Allocation) -> list[Device]:
        """The devices of an allocation, on machines that are known."""
        devices: list[Device] = []
        for part in on.slices:
            chain, node = self._layout.home[part.node]
            first = node * self._layout.chains[chain].node_size
            devices += [(chain, first + gpu) for gpu in part.gpus]
        return devices

    def block(self, on: Allocation) -> None:
        """Count what a job holds as held by somebody who will not leave."""
        for part in on.slices:
            node = self._view.cluster.index[part.node]
            mask = sum(1 << gpu for gpu in part.gpus)
            self.blocked[node] = self.blocked.get(node, 0) | mask

    def blocked_devices(self) -> Iterator[Device]:
        """Devices that cannot be had."""
        for i, mask in self.blocked.items():
            node = self._view.cluster.nodes[i]
            chain, number = self._layout.home[node.id]
            first = number * self._layout.chains[chain].node_size
            yield from ((chain, first + gpu) for gpu in range(node.gpus) if mask >> gpu & 1)

    def free_cells(self) -> list[FreeCells]:
        """All cells of each chain, those of machines that are away marked bad."""
        here = self._view.cluster.index
        all_here = len(self._layout.home) == len(here)
        free = []
        for chain, machines in zip(self._layout.chains, self._layout.machines, strict=True):
            away = () if all_here else enumerate(machines)
            bad = [i for i, machine in away if machine[0] not in here]
            free.append(FreeCells(chain, bad))
        return free

    def _find_blocked(self) -> dict[int, int]:
        view = self._view
        shown: defaultdict[int, int] = defaultdict(int)
        for on in view.table.allocations:
            for part in () if on is None else on.slices:
                at = view.cluster.index[part.node]
                for gpu in part.gpus:
                    shown[at] |= 1 << gpu
        held = sum(mask.bit_count() for mask in shown.values())
        if sum(view.free.idle_by_kind()) + held == view.cluster.gpus:
            return {}
        blocked = {}
        for i, node in enumerate(view.cluster.nodes):
            mask = ((1 << node.gpus) - 1) & ~view.free.idle_mask(i) & ~shown[i]
            if mask:
                blocked[i] = mask
        return blocked

    def _find_hosts(self) -> dict[int, Node]:
        """A machine of each chain that is here, with the smallest host of all."""
        hosts: dict[int, Node] = {}
        nodes, index = self._view.cluster.nodes, self._view.cluster.index
        for chain, machines in enumerate(self._layout.machines):
            here = next((index[NodeId(m[0])] for m in machines if m[0] in index), None)
            if here is not None:
                cpus, mem_gb = self._layout.hosts[chain]
                hosts[chain] = replace(nodes[here], cpus=cpus, mem_gb=mem_gb)
        return hosts
