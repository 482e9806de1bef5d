"""Opens GPUs and allocates on them, as the first lines of a training do; about a second each.

    python -m weft.wire.gpu_check GPU

A process of its own tries each GPU and sees no other, so that one that hangs keeps none waiting.
By ctypes: the library comes with the driver. No answer is a fault only after `LIMIT_S`, since a
driver without persistence mode is loaded first.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

LIBRARY = "libcuda.so.1"
LIMIT_S = 30.0
BYTES, PATTERN = 64 << 20, 0x5EED5EED
OPEN = (sys.executable, "-P", "-m", "weft.wire.gpu_check")
NOT_TRIED = 3  # exit code
# No room, another process has it for itself, or it is the MPS server that fails.
NOT_THE_GPU = (2, 46, *range(805, 811))


def check_gpus(
    names: Sequence[str], command: Sequence[str] = OPEN, limit_s: float = LIMIT_S
) -> dict[str, str]:
    """The fault of each GPU, empty for one that works; without those that could not be tried.

    Names are as CUDA_VISIBLE_DEVICES takes them.
    """
    tries = {name: _start(name, command) for name in names}
    until = time.monotonic() + limit_s
    faults = {name: _await(tried, until, limit_s) for name, tried in tries.items()}
    return {name: fault for name, fault in faults.items() if fault is not None}


def _start(name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a module of ours
        [*command, name],
        env={**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _await(tried: subprocess.Popen[bytes], until: float, limit_s: float) -> str | None:
    try:
        output, _ = tried.communicate(timeout=max(until - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        tried.kill()
        with suppress(subprocess.TimeoutExpired):  # inside the driver it may not end
            tried.communicate(timeout=1.0)
        return f"it did not open within {limit_s:g} s"
    if tried.returncode in (0, NOT_TRIED):
        return "" if tried.returncode == 0 else None
    lines = output.decode(errors="replace").split("\n")
    return lines[0][:200] or f"the program that opened it ended with {tried.returncode}"


def open_gpu(cuda: Any) -> str:
    """The fault of the first GPU that the library shows; empty for one that works."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_ulonglong()
    read, size = ctypes.c_uint(), ctypes.c_size_t(BYTES)
    calls: Mapping[str, tuple[object, ...]] = {
        "cuInit": (ctypes.c_uint(0),),
        "cuDeviceGet": (ctypes.byref(device), ctypes.c_int(0)),
        "cuDevicePrimaryCtxRetain": (ctypes.byref(context), device),
        "cuCtxSetCurrent": (context,),
        "cuMemAlloc_v2": (ctypes.byref(memory), size),
        "cuMemsetD32_v2": (memory, ctypes.c_uint(PATTERN), ctypes.c_size_t(BYTES // 4)),
        "cuMemcpyDtoH_v2": (ctypes.byref(read), memory, ctypes.c_size_t(4)),
    }
    for name, arguments in calls.items():
        code = int(cuda[name](*arguments))
        if code in NOT_THE_GPU:
            return ""
        if code != 0:
            return f"{name} answered {code} ({_describe(cuda, code)})"
    return "" if read.value == PATTERN else "its memory holds another value than was written"


def _describe(cuda: Any, code: int) -> str:
    text = ctypes.c_char_p()
    cuda["cuGetErrorString"](ctypes.c_int(code), ctypes.byref(text))
    return (text.value or b"unknown").decode(errors="replace")


def main() -> int:
    """Try the GPU that is visible: 0 if it works, 1 with its fault, 3 without CUDA."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return NOT_TRIED
    fault = open_gpu(cuda)
    if fault:
        sys.stdout.write(fault)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
