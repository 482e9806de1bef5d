"""What the check of a GPU makes of the answers of CUDA's library."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from weft.wire.gpu_check import PATTERN, open_gpu

CALLS = ("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2")


class Cuda:
    """A GPU whose memory keeps what is written, unless a call fails or it `forgets`."""

    def __init__(self, failing: str = "", code: int = 0, *, forgets: bool = False) -> None:
        self._failing, self._code, self._forgets = failing, code, forgets

    def __getitem__(self, name: str) -> Any:
        own = {"cuMemcpyDtoH_v2": self._copy, "cuGetErrorString": self._describe}
        return own.get(name, lambda *arguments: self._code if name == self._failing else 0)

    def _copy(self, to: Any, _memory: Any, _bytes: Any) -> int:
        to._obj.value = 0 if self._forgets else PATTERN
        return 0

    def _describe(self, code: ctypes.c_int, to: Any) -> int:
        to._obj.value = b"no CUDA-capable device is detected" if code.value == 100 else None
        return 0


def test_a_gpu_that_opens_and_keeps_what_is_written_has_no_fault() -> None:
    assert open_gpu(Cuda()) == ""


@pytest.mark.parametrize("call", CALLS)
def test_the_first_call_that_fails_is_named_with_the_librarys_words(call: str) -> None:
    assert open_gpu(Cuda(call, 100)) == f"{call} answered 100 (no CUDA-capable device is detected)"
    assert open_gpu(Cuda(call, 999)) == f"{call} answered 999 (unknown)"


def test_a_gpu_that_others_use_is_not_to_blame() -> None:
    assert open_gpu(Cuda("cuInit", 807)) == ""
    assert open_gpu(Cuda("cuMemAlloc_v2", 2)) == ""
    assert open_gpu(Cuda("cuDevicePrimaryCtxRetain", 46)) == ""


def test_memory_that_forgets_is_a_fault() -> None:
    assert open_gpu(Cuda(forgets=True)) == "its memory holds another value than was written"
