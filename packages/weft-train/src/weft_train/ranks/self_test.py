"""A test of whether ranks can change as they train, with this PyTorch on this device.

Two ranks train a small model, form the groups of the next epoch beside it, move over, close the old
ones and train on: some seconds, in processes of their own, since what PyTorch does not document may
end a process. What came of it is kept for this PyTorch, NCCL and kind of device in
`~/.cache/weft/live-resize`, a failure for an hour.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from weft_train.ranks import groups

KNOWN = ("2.13",)  # on CPUs every change of Weft is tested with it
LIMIT_S = 180.0  # some seconds where nothing hangs
AGAIN_S = 3600.0  # from a failure until it is tried again
RANKS = 2
STEPS_BEFORE = 3
# Two ranks of one GPU meet only if NCCL takes them for two machines.
APART = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket", "NCCL_NVLS_ENABLE": "0"}


@dataclass(frozen=True, slots=True)
class Ability:
    """Reasons against a move of a rank without peers, and changes of several; none if they can."""

    alone: str = ""
    several: str = ""


def find_ability(device: torch.device) -> Ability:
    """Find out what ranks on this device can do; from the cache if it was tried before."""
    why = _ask(device)
    # A rank that has no peers needs lines for the state alone, and these are the CPU's.
    return Ability(why if device.type == "cpu" or not why else _ask(groups.CPU), why)


def name_kind(device: torch.device) -> str:
    """Name all that the outcome depends on."""
    parts = [f"torch {torch.__version__}", f"python {sys.version_info[0]}.{sys.version_info[1]}"]
    if device.type == "cuda":
        version: Any = torch.cuda.nccl.version
        parts += [f"NCCL {'.'.join(map(str, version()))}", torch.cuda.get_device_name(device)]
    return ", ".join(parts)


def _ask(device: torch.device) -> str:
    if not dist.is_available() or not dist.is_gloo_available():
        return "this PyTorch was built without gloo"
    if device.type == "cuda" and not dist.is_nccl_available():
        return "this PyTorch was built without NCCL"
    if device.type == "cpu" and ".".join(torch.__version__.split(".")[:2]) in KNOWN:
        return ""
    kind = name_kind(device)
    kept = _folder() / (re.sub(r"[^\w.+]+", "-", kind) + ".json")
    why = _read(kept)
    if why is None:
        why = try_out(device)
        _keep(kept, {"of": kind, "why": why, "at": time.time()})
    return f"the self-test of {kind} failed: {why}" if why else ""


def _folder() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        cache = Path(named) if named else Path.home() / ".cache"
    except RuntimeError:  # whoever this is has no home
        cache = Path(tempfile.gettempdir())
    return cache / "weft" / "live-resize"


def _read(kept: Path) -> str | None:
    try:
        body = json.loads(kept.read_text())
        why, at = str(body["why"]), float(body["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if why and not 0.0 <= time.time() - at < AGAIN_S else why


def _keep(kept: Path, tried: dict[str, object]) -> None:
    with suppress(OSError):  # then the next job tries it again
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(tried))
        part.replace(kept)


def try_out(device: torch.device) -> str:
    """Run the test in a process of its own; why it failed, nothing if it did not."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("WEFT_")}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    call = f"from {__name__} import main; raise SystemExit(main({str(device)!r}))"
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-P", "-c", call],
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end in {LIMIT_S:g} s"
    except OSError as error:
        return f"it could not be started: {error}"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]


# ---- in the processes of the test


def _train_and_change(rank: int, folder: Path, device: torch.device) -> None:
    os.environ |= {**APART, "NCCL_HOSTID": f"weft-self-test-{rank}"}
    if device.type == "cuda":
        groups.outlive_peers()
        torch.cuda.set_device(device)
    old = _meet(folder, 0, rank, device)
    torch.manual_seed(0)
    bare = torch.nn.Linear(4, 4, bias=False).to(device)
    ids = [device.index] if device.type == "cuda" else None
    model = DistributedDataParallel(bare, device_ids=ids, process_group=old)
    groups.fix_buckets(model)
    made: list[object] = []
    forming = threading.Thread(target=lambda: made.append(_meet(folder, 1, rank, device)))
    forming.start()
    steps, over = 0, torch.zeros(1)
    while steps < STEPS_BEFORE or over.item() < RANKS:  # both come out at the same step
        _step(model, rank, device)
        steps, over = steps + 1, torch.tensor([float(not forming.is_alive())])
        dist.all_reduce(over, group=old)
    if not made:
        raise RuntimeError("no group was formed beside the one in use")
    new = made[0]
    groups.move_to(model, new)
    groups.make_default(new)
    groups.retire([old])
    time.sleep(2 * groups.RETIRE_S)
    for _ in range(STEPS_BEFORE):
        _step(model, rank, device)
    groups.abort(new)


def _meet(folder: Path, epoch: int, rank: int, device: torch.device) -> object:
    store = groups.open_store(str(folder / f"epoch-{epoch}"), LIMIT_S)
    return groups.form(store, f"weft-{epoch}", rank, RANKS, LIMIT_S, device)


def _step(model: DistributedDataParallel, rank: int, device: torch.device) -> None:
    model.zero_grad()
    model(torch.full((1, 4), rank + 1.0, device=device)).sum().backward()
    mean = sum(range(1, RANKS + 1)) / RANKS
    gradient = next(model.parameters()).grad
    if gradient is None or not torch.equal(gradient, torch.full_like(gradient, mean)):
        raise RuntimeError("gradients were not averaged")


def _run(rank: int, folder: Path, device: torch.device) -> None:
    try:
        _train_and_change(rank, folder, device)
    except Exception as error:  # whatever it is, it is why not
        lines = str(error).splitlines() or [""]
        sys.stderr.write(f"{type(error).__name__}: {lines[0]}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main(name: str) -> int:
    """Run the ranks of the test on a device; 1 if one of them failed."""
    device = torch.device(name)
    fork = mp.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="weft-self-test-") as folder:
        ranks = [
            fork.Process(target=_run, args=(rank, Path(folder), device), daemon=True)
            for rank in range(RANKS)
        ]
        for rank in ranks:
            rank.start()
        while all(rank.exitcode in (None, 0) for rank in ranks) and any(
            rank.is_alive() for rank in ranks
        ):
            time.sleep(0.02)
        bad = [rank.exitcode for rank in ranks if rank.exitcode]
        for rank in ranks:
            rank.kill()
            rank.join()
    if bad and bad[0] is not None and bad[0] < 0:
        sys.stderr.write(f"a rank was ended by signal {-bad[0]}\n")
    return int(bool(bad))
