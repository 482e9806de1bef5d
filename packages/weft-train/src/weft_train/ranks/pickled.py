"""Any value as a tensor of bytes, and back: what ranks of one job send each other.

Torch's own collectives of objects need numpy, which torch does not bring.
"""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import torch


def pack(value: Any) -> torch.Tensor:
    """The bytes of a value."""
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def unpack(packed: torch.Tensor) -> Any:
    """The value; what comes after its bytes is left out."""
    own = packed.contiguous()
    # From another rank of this job.
    return pickle.loads(ctypes.string_at(own.data_ptr(), own.numel()))  # noqa: S301
