"""Output of ranks, in files that do not grow without bound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from weft.wire.gpu_health import is_fault
from weft.wire.shared_files import OPEN, make_file

TAIL_BYTES = 8192
# What frameworks say when a device has too little memory: PyTorch, CUDA, JAX, TensorFlow, cuBLAS.
OUT_OF_MEMORY = (
    b"OutOfMemoryError",
    b"CUDA out of memory",
    b"CUDA error: out of memory",
    b"CUDA_ERROR_OUT_OF_MEMORY",
    b"cudaErrorMemoryAllocation",
    b"RESOURCE_EXHAUSTED: Out of memory",
    b"CUBLAS_STATUS_ALLOC_FAILED",
)


class RankLog:
    """One rank's file; beyond `limit` bytes it becomes `NAME.1` and a new one begins."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._limit = limit
        self._out = _open(path)
        self._tail = b""

    def write(self, chunk: bytes) -> None:
        """Append; a full disk loses output, never the job."""
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        try:
            if self._out.tell() + len(chunk) > self._limit:
                self._out.close()
                os.replace(self.path, self.path.with_name(self.path.name + ".1"))  # noqa: PTH105
                self._out = _open(self.path)
            self._out.write(chunk)
        except OSError as error:
            self._tail += f"\n(output lost: {error.strerror})".encode()

    def last_line(self) -> str:
        """The last thing said, for a failure's reason; before that, what a GPU's fault was.

        A hint says what to do about an error, and the error is above it.
        """
        lines = [line.strip() for line in self._tail.decode(errors="replace").splitlines()]
        fault = next((line for line in reversed(lines) if is_fault(line)), "")
        printed = [line for line in lines if line]
        errors = [line for line in printed if not line.lower().startswith("hint:")]
        return (fault or next(reversed(errors or printed), ""))[:300]

    def ran_out_of_memory(self) -> bool:
        """True if its last words are that a device had too little memory."""
        return any(words in self._tail for words in OUT_OF_MEMORY)

    def close(self) -> None:
        self._out.close()


def _open(path: Path) -> BinaryIO:
    return os.fdopen(make_file(path, os.O_WRONLY | os.O_APPEND, OPEN), "ab", buffering=0)
