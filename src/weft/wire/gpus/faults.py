"""What jobs print when a GPU ends their work: for a fault of their own, or of their neighbours.

Under MPS a fatal fault of one client ends all clients of its GPU, and nothing says whose.
"""

from __future__ import annotations

FAULTS = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "device-side assert triggered",
    "hardware stack error",
    "misaligned address",
    "unspecified launch failure",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "uncorrectable ECC error",
)
OF_OTHERS = (
    "MPS client failed to connect",
    "MPS client was terminated",
    "MPS client has been terminated",
    "MPS server is not ready",
    "MPS RPC",
    "CUDA_ERROR_MPS_",
)


def is_fault(text: str) -> bool:
    """Whether a line reports a fault, whatever caused it."""
    return any(words in text for words in (*FAULTS, *OF_OTHERS))


def is_of_others(text: str) -> bool:
    """Whether a line tells that a client was ended by what others did."""
    return any(words in text for words in OF_OTHERS)
