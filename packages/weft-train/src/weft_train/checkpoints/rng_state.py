"""The states of the random number generators a script may use."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def capture(device: torch.device) -> dict[str, Any]:
    """Of Python, torch, the rank's GPU, and numpy if the script imported it."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    if numpy := sys.modules.get("numpy"):
        state["numpy"] = numpy.random.get_state()
    return state


def restore(states: list[dict[str, Any]], rank: int, ranks: int, device: torch.device) -> None:
    """Go on as a rank did; in a gang of another size ranks other than 0 start over, apart."""
    if rank >= len(states) or (rank > 0 and len(states) != ranks):
        mix = torch.randint(1 << 31, (1,), generator=_generator(states[0]["torch"])).item()
        torch.manual_seed(int(mix) + rank)
        random.seed(int(mix) + rank)
        return
    state = states[rank]
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
    if "numpy" in state and (numpy := sys.modules.get("numpy")):
        numpy.random.set_state(state["numpy"])


def _generator(state: torch.Tensor) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(state)
    return generator
