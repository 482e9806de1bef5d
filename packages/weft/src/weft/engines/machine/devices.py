"""The devices of this machine: GPUs by NVML or nvidia-smi, or CPU slots that stand in for them."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.cluster import CPU, GPU_MEM_GB, Node
from weft.core.model.job import NodeId
from weft.core.model.topology import HOST_GB_S, MOST_GPUS, GpuLink, Groups, NodeTopology
from weft.frozen import frozen

_QUERY = ("--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")


@frozen
class Gpu:
    """One device as the driver numbers it."""

    index: int
    name: str
    mem_gb: float


@frozen
class LocalMachine:
    """One machine as a node, and its cores by device. `gpus` is empty with CPU slots."""

    node: Node
    gpus: tuple[Gpu, ...]
    cores: tuple[tuple[int, ...], ...]


def find_machine(name: str, slots: int, *, cpu: bool, slot_gb: float = 0.0) -> LocalMachine:
    """The machine as it is found: GPUs and their links, or CPU slots; `cpu` leaves GPUs alone.

    `slot_gb` is the memory of a slot; 0 where it is not counted.
    """
    gpus = () if cpu else find_gpus()
    links = find_links(kind_of(gpus[0].name), [gpu.index for gpu in gpus]) if gpus else None
    return this_machine(name, slots, gpus, links, slot_gb)


def this_machine(
    name: str,
    slots: int,
    gpus: Sequence[Gpu],
    links: NodeTopology | None = None,
    slot_gb: float = 0.0,
) -> LocalMachine:
    """A node of these GPUs, or of `slots` CPU slots (0: one for each core) if there are none."""
    cores = sorted(os.sched_getaffinity(0))
    kinds = {kind_of(gpu.name) for gpu in gpus}
    if len(kinds) > 1:
        raise EngineError(
            f"this machine has GPUs of several kinds: {', '.join(sorted(kinds))}",
            hint="name those of one kind in CUDA_VISIBLE_DEVICES",
        )
    if slots < 0:
        raise InvalidConfig(f"there cannot be {slots} slots", hint="--slots takes 1 or more")
    count = len(gpus) or slots or len(cores)
    kind = kinds.pop() if kinds else CPU
    cpus, mem_gb = float(len(cores)), _memory_gb()
    # What is known about a kind holds; others were not in logs with a memory of their own before.
    own_gb = 0.0 if kind in GPU_MEM_GB else min((gpu.mem_gb for gpu in gpus), default=slot_gb)
    node = Node(
        NodeId(name), kind, count, cpus=cpus, mem_gb=mem_gb, gpu_mem_gb=own_gb, topology=links
    )
    return LocalMachine(node, tuple(gpus), split_cores(cores, count))


def split_cores(cores: Sequence[int], devices: int) -> tuple[tuple[int, ...], ...]:
    """Each device's cores: equal parts, or one core for several devices where there are more."""
    if devices >= len(cores):
        return tuple((cores[device % len(cores)],) for device in range(devices))
    ends = [round(i * len(cores) / devices) for i in range(devices + 1)]
    return tuple(tuple(cores[a:b]) for a, b in pairwise(ends))


def find_gpus() -> tuple[Gpu, ...]:
    """The GPUs that may be used here; none without a driver."""
    gpus = _by_nvml()
    if gpus is None:
        gpus = _by_command()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return gpus
    wanted = {int(part) for part in allowed.split(",") if part.strip().isdigit()}
    return tuple(gpu for gpu in gpus if gpu.index in wanted)


def parse_smi(text: str) -> tuple[Gpu, ...]:
    """GPUs from `nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits`."""
    gpus = []
    for line in filter(str.strip, text.splitlines()):
        try:
            index, name, mem = (part.strip() for part in line.split(","))
            gpus.append(Gpu(int(index), name, float(mem) / 1024.0))
        except ValueError as error:
            raise EngineError(f"cannot understand nvidia-smi's line {line!r}") from error
    return tuple(gpus)


def kind_of(name: str) -> str:
    """Our word for a model: `NVIDIA H200` is h200, `Tesla V100-SXM2-16GB` is v100."""
    words = re.sub(r"(?i)\b(nvidia|tesla|quadro|geforce|graphics|device)\b", " ", name).split()
    text = "-".join(words).lower() or "gpu"
    match = re.match(r"[a-z]{1,3}\d{1,4}[a-z]?(?=-|$)", text)
    return match[0] if match else re.sub(r"[^a-z0-9.-]", "", text)


def _by_nvml() -> tuple[Gpu, ...] | None:
    with opened_nvml() as nvml:
        if nvml is None:
            return None
        gpus = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(handle)
            total = nvml.nvmlDeviceGetMemoryInfo(handle).total
            gpus.append(Gpu(index, name if isinstance(name, str) else name.decode(), total / 2**30))
    return tuple(gpus)


def _by_command() -> tuple[Gpu, ...]:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ()
    done = subprocess.run([smi, *_QUERY], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    return parse_smi(done.stdout) if done.returncode == 0 else ()


def _memory_gb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024 / 1e9
    raise EngineError("/proc/meminfo does not say how much memory there is")


# ---- How the GPUs of this machine are joined: what `nvidia-smi topo -m` shows, by NVML or from
# it


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
    """The links of each pair of GPUs, in nvidia-smi's words, and the NUMA node of each; -1 unknown.

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
    """The links between these GPUs; None for fewer than two, or where nothing tells."""
    if not 2 <= len(wanted) <= MOST_GPUS:
        return None
    matrix = _links_by_nvml() or _links_by_command()
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


def _links_by_nvml() -> LinkMatrix | None:
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
    """Active lanes by the bus that they lead to; None for NVSwitch."""
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


def _links_by_command() -> LinkMatrix | None:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    command = [smi, "topo", "-m"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    return parse_topo(done.stdout) if done.returncode == 0 else None


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """The module `pynvml`, ready to be asked; None without it or without a driver.

    It is optional: `nvidia-smi` says the same, more slowly.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()
