"""What this machine has: GPUs by NVML or nvidia-smi, or CPU slots that stand in for them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.cluster import CPU, GPU_MEM_GB, Node
from weft.core.model.job import NodeId
from weft.core.model.topology import NodeTopology
from weft.engines.machine.gpu_links import find_links
from weft.engines.machine.nvml import opened_nvml
from weft.frozen import frozen

_QUERY = ("--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")


@frozen
class Gpu:
    """One device as the driver numbers it."""

    index: int
    name: str
    mem_gb: float


@frozen
class Machine:
    """One machine as a node, and its cores by device. `gpus` is empty with CPU slots."""

    node: Node
    gpus: tuple[Gpu, ...]
    cores: tuple[tuple[int, ...], ...]


def find_machine(name: str, slots: int, *, cpu: bool, slot_gb: float = 0.0) -> Machine:
    """What is here: GPUs and how they are joined, or CPU slots; `cpu` leaves GPUs alone.

    `slot_gb` is the memory of a slot; 0 where nobody counts it.
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
) -> Machine:
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
    # What is known of a kind holds; others were not in logs with a memory of their own before.
    own_gb = 0.0 if kind in GPU_MEM_GB else min((gpu.mem_gb for gpu in gpus), default=slot_gb)
    node = Node(
        NodeId(name), kind, count, cpus=cpus, mem_gb=mem_gb, gpu_mem_gb=own_gb, topology=links
    )
    return Machine(node, tuple(gpus), split_cores(cores, count))


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
