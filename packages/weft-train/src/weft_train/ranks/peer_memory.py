"""Tensors out of the memory of another process on the same machine, copied once and by the reader.

Linux lets a process read the memory of another one of the same user; on a GPU, CUDA lets processes
open each other's allocations. Neither is sure to be allowed: a rank that cannot read gets an
OSError or a RuntimeError, and asks to be sent the tensors instead.
"""

from __future__ import annotations

import ctypes
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

log = logging.getLogger(__name__)

TOKEN_BYTES = 16
MOST_PARTS = 512  # of one call; Linux takes 1,024
MOST_BYTES = 1 << 30  # of one part; Linux takes almost 2 GB in a call
PR_SET_PTRACER = 0x59616D61
ANYBODY, NOBODY = ctypes.c_ulong(-1 & (2**64 - 1)), ctypes.c_ulong(0)
_libc = ctypes.CDLL(None, use_errno=True)

Span = tuple[int, int, int]  # address here, address there, bytes


class _Part(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@dataclass(frozen=True, slots=True)
class Origin:
    """The process whose memory it is. A number may mean another process elsewhere: see `token`.

    `gpu` is the device that its GPU tensors are on, by the name that no other device has.
    """

    pid: int
    at: int
    token: bytes
    gpu: str = ""


@contextmanager
def open_memory(device: torch.device) -> Iterator[Origin]:
    """Let processes of the same user read this one's memory, for as long as this lasts."""
    token = secrets.token_bytes(TOKEN_BYTES)
    held = ctypes.create_string_buffer(token, TOKEN_BYTES)
    _libc.prctl(PR_SET_PTRACER, ANYBODY, 0, 0, 0)  # an error where it is not restricted
    try:
        yield Origin(os.getpid(), ctypes.addressof(held), token, name_gpu(device))
    finally:
        _libc.prctl(PR_SET_PTRACER, NOBODY, 0, 0, 0)


def name_gpu(device: torch.device) -> str:
    """Return a GPU's name, independent of visible numbers; empty for a CPU."""
    if device.type != "cuda":
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def check_origin(origin: Origin) -> None:
    """OSError unless its memory can be read and is the one that is meant."""
    token = ctypes.create_string_buffer(TOKEN_BYTES)
    read_spans(origin, [(ctypes.addressof(token), origin.at, TOKEN_BYTES)])
    if token.raw != origin.token:
        raise OSError(f"process {origin.pid} is another one here")


def read_spans(origin: Origin, spans: Sequence[Span]) -> None:
    """Fill memory of this process from the other's; OSError unless all of it could be read."""
    parts = [part for span in spans for part in _split(span)]
    for at in range(0, len(parts), MOST_PARTS):
        _read(origin.pid, parts[at : at + MOST_PARTS])


def _split(span: Span) -> Iterator[Span]:
    here, there, length = span
    for at in range(0, length, MOST_BYTES):
        yield here + at, there + at, min(MOST_BYTES, length - at)


def _read(pid: int, parts: list[Span]) -> None:
    while parts:
        some = _take_some(parts)
        kind = _Part * len(some)
        ours = kind(*(_Part(here, length) for here, _, length in some))
        theirs = kind(*(_Part(there, length) for _, there, length in some))
        call = _libc.process_vm_readv
        call.restype = ctypes.c_ssize_t
        got = call(pid, ours, len(some), theirs, len(some), 0)
        if got != sum(length for *_, length in some):
            code = ctypes.get_errno()
            raise OSError(code, f"memory of process {pid} cannot be read: {os.strerror(code)}")


def _take_some(parts: list[Span]) -> list[Span]:
    """Take from the front what one call may have; at least one."""
    total, count = 0, 0
    while count < len(parts) and (not count or total + parts[count][2] <= MOST_BYTES):
        total += parts[count][2]
        count += 1
    some = parts[:count]
    del parts[:count]
    return some


def share_on_gpu(tensor: torch.Tensor) -> Any:
    """A handle by which another process opens this memory, None where there is none.

    The memory must stay until that is done.
    """
    from torch.multiprocessing import reductions

    share: Any = reductions.reduce_tensor
    try:
        return share(tensor)
    except RuntimeError as error:
        log.info("a tensor on the GPU cannot be shared: %s", error)
        return None


def open_on_gpu(handle: Any) -> torch.Tensor:
    """Open what `share_on_gpu` shared, on the same GPU."""
    build, args = handle
    tensor: torch.Tensor = build(*args)
    return tensor
