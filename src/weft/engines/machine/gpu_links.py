"""How the GPUs of this machine are joined: what `nvidia-smi topo -m` shows, by NVML or from it."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.core.model.topology import HOST_GB_S, MOST_GPUS, GpuLink, Groups, NodeTopology
from weft.engines.machine.nvml import opened_nvml
from weft.frozen import frozen

log = logging.getLogger(__name__)

# NVLink of a GPU kind: GB/s of a lane one way, and how many lanes a GPU has.
LANES: Mapping[str, tuple[float, int]] = {
    "p100": (20.0, 4),
    "v100": (25.0, 6),
    "a100": (25.0, 12),
    "h100": (25.0, 18),
    "h200": (25.0, 18),
    "b200": (50.0, 18),
}
ANY_LANES = (25.0, 18)
PCIE_SWITCH = ("PIX", "PXB")  # what joins two GPUs below a host bridge
NVML_LEVELS = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@frozen
class LinkMatrix:
    """What joins each pair of GPUs, in nvidia-smi's words, and the NUMA node of each; -1 unknown.

    `NV4` is four lanes of NVLink, `PIX` and `PXB` are PCIe switches, `PHB` and `NODE` the host
    bridges of a socket, `SYS` the link between sockets.
    """

    cells: tuple[tuple[str, ...], ...]
    numa: tuple[int, ...]

    def restrict(self, wanted: Sequence[int]) -> LinkMatrix:
        """Some of the GPUs alone."""
        rows = tuple(tuple(self.cells[a][b] for b in wanted) for a in wanted)
        return LinkMatrix(rows, tuple(self.numa[a] for a in wanted))


def find_links(kind: str, wanted: Sequence[int]) -> NodeTopology | None:
    """How these GPUs are joined; None for fewer than two, or where nothing tells."""
    if not 2 <= len(wanted) <= MOST_GPUS:
        return None
    matrix = _by_nvml() or _by_command()
    if matrix is None or len(matrix.cells) <= max(wanted):
        log.info("links=unknown gpus=%d", len(wanted))
        return None
    return read_links(kind, matrix.restrict(wanted))


def read_links(kind: str, matrix: LinkMatrix) -> NodeTopology:
    """The links of a node of GPUs of `kind` from its matrix."""
    cells, n = matrix.cells, len(matrix.cells)
    per_lane, most = LANES.get(kind, ANY_LANES)
    shown = {(a, b): _lanes(cells[a][b]) for a in range(n) for b in range(a + 1, n)}
    lanes = {pair: width for pair, width in shown.items() if width}
    sockets = _group(n, lambda a, b: _same_socket(matrix, a, b))
    switches = _group(n, lambda a, b: cells[a][b] in PCIE_SWITCH)
    # A pair shows all lanes of its GPUs where they meet in a switch: more than there are of them.
    through_switch = lanes and max(_lanes_of(gpu, lanes) for gpu in range(n)) > most
    if through_switch:
        width = min(max(lanes.values()), most)
        return NodeTopology(
            kind,
            n,
            sockets=sockets,
            switches=switches,
            fabric_gb_s=width * per_lane,
            fabric_width=width,
        )
    links = tuple(GpuLink(a, b, width, width * per_lane) for (a, b), width in lanes.items())
    return NodeTopology(kind, n, links, sockets, switches, HOST_GB_S)


def parse_topo(text: str) -> LinkMatrix | None:
    """The matrix that `nvidia-smi topo -m` prints; None if it is none."""
    lines = [COLOURS.sub("", line).rstrip() for line in text.splitlines()]
    head = next((line.strip().split("\t") for line in lines if "GPU0" in line), None)
    if head is None:
        return None
    names = [cell.strip() for cell in head]
    count = sum(bool(re.fullmatch(r"GPU\d+", name)) for name in names)
    cells, numa = [], []
    for line in lines:
        row = [cell.strip() for cell in line.split("\t")]
        if re.fullmatch(r"GPU\d+", row[0]) and len(row) > count:
            cells.append(tuple(row[1 : count + 1]))
            numa.append(_read_numa(names, row))
    return LinkMatrix(tuple(cells), tuple(numa)) if len(cells) == count else None


def _read_numa(names: list[str], row: list[str]) -> int:
    """The column `NUMA Affinity`, whose heads are not aligned with their cells in every version."""
    if "NUMA Affinity" not in names:
        return -1
    at = names.index("NUMA Affinity") + 1  # the row begins with its own name
    text = row[at] if at < len(row) else ""
    return int(text) if text.isdigit() else -1


def _lanes(cell: str) -> int:
    match = re.fullmatch(r"NV(\d+)", cell)
    return int(match[1]) if match else 0


def _lanes_of(gpu: int, lanes: Mapping[tuple[int, int], int]) -> int:
    return sum(width for pair, width in lanes.items() if gpu in pair)


def _same_socket(matrix: LinkMatrix, a: int, b: int) -> bool:
    """By NUMA node where both are known; NVLink hides what else joins a pair."""
    if matrix.numa[a] >= 0 and matrix.numa[b] >= 0:
        return matrix.numa[a] == matrix.numa[b]
    return matrix.cells[a][b] != "SYS"


def _group(n: int, together: Callable[[int, int], bool]) -> Groups:
    """GPUs in groups, each with the first that it is together with."""
    groups: list[list[int]] = []
    for gpu in range(n):
        home = next((group for group in groups if together(group[0], gpu)), None)
        if home is None:
            groups.append([gpu])
        else:
            home.append(gpu)
    return tuple(map(tuple, groups))


def _by_nvml() -> LinkMatrix | None:
    with opened_nvml() as nvml:
        if nvml is None:
            return None
        try:
            return _ask_nvml(nvml)
        except nvml.NVMLError as error:
            log.info("links=unknown reason=%s", error)  # an old driver, or a virtual machine
            return None


def _ask_nvml(nvml: Any) -> LinkMatrix:
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    buses = [nvml.nvmlDeviceGetPciInfo(handle).busId for handle in handles]
    peers = [_count_peers(nvml, handle) for handle in handles]
    rows = []
    for a, this in enumerate(handles):
        row = []
        for b, other in enumerate(handles):
            level = NVML_LEVELS.get(nvml.nvmlDeviceGetTopologyCommonAncestor(this, other), "SYS")
            switched = min(peers[a].get(None, 0), peers[b].get(None, 0))
            lanes = peers[a].get(buses[b], 0) or switched
            row.append("X" if a == b else f"NV{lanes}" if lanes else level)
        rows.append(tuple(row))
    return LinkMatrix(tuple(rows), tuple(_numa(nvml, handle) for handle in handles))


def _count_peers(nvml: Any, handle: Any) -> dict[Any, int]:
    """Active lanes by the bus of whom they lead to; None for NVSwitch."""
    counts: dict[Any, int] = {}
    for lane in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, lane):
                continue
            kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, lane)
            bus = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, lane).busId
        except nvml.NVMLError:
            break  # no such lane: this one has fewer, or none at all
        to = None if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH else bus
        counts[to] = counts.get(to, 0) + 1
    return counts


def _numa(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetNumaNodeId(handle))
    except (AttributeError, nvml.NVMLError):
        return -1  # an older NVML knows no NUMA nodes


def _by_command() -> LinkMatrix | None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    command = [smi, "topo", "-m"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    return parse_topo(done.stdout) if done.returncode == 0 else None
