"""Jobs that take turns on a whole device, and opportunistic jobs in the gaps of others."""

from __future__ import annotations

from math import floor

QUANTUM_S = 60.0
HAND_OVER_S = 0.5
SPILL = 0.7  # speed left to a job part of whose tensors live in host memory
TOLERANCE = 0.01  # what a guaranteed job loses to a paced neighbour


def slice_speed(
    claim: float, claims: float, *, quantum_s: float = QUANTUM_S, hand_over_s: float = HAND_OVER_S
) -> float:
    """Speed of one of several jobs that get the device in turns, in proportion to claims.

    Every change of hands costs `hand_over_s` (Xiao et al., Gandiva, OSDI 2018).
    """
    return claim / claims * quantum_s / (quantum_s + hand_over_s)


def paced_speed(share: float, busy: float, own_use: float) -> float:
    """Speed of an opportunistic job beside guaranteed ones that are `busy` that part of the time.

    It gets at most its `share` of wall time and what they leave of the processors (after Xiao
    et al., AntMan, OSDI 2020).
    """
    left = max(1.0 - busy, 0.0)
    return min(1.0, share, left / own_use if own_use > 0.0 else 1.0)


def guarded_speed(busy: float, asked: float) -> float:
    """Speed of a guaranteed job that is `busy` that part of the time, beside paced ones.

    What they ask for in its gaps costs it nothing but `TOLERANCE`; what they ask for beyond
    them comes out of all parts.
    """
    return (1.0 - TOLERANCE) / max(busy + asked, 1.0)


def gap_iterations(own: tuple[float, ...], guaranteed: tuple[float, ...]) -> int:
    """Iterations of a guaranteed job that one of an opportunistic job above it takes.

    As Muri's simulator models AntMan: the data stage runs while the other is on GPU or network,
    the GPU stage while it is on data or network, the network stage while on data or GPU.
    """
    data, gpu, net = own
    c_data, c_gpu, c_net = guaranteed
    count = floor(data / (c_gpu + c_net))
    if (rest := data % (c_gpu + c_net)) > 0.0:
        count += 1
        gpu -= min(gpu, c_net, c_gpu + c_net - rest)
    count += floor(gpu / (c_data + c_net))
    if (rest := gpu % (c_data + c_net)) > 0.0:
        count += 1
        if rest < c_data:
            net -= min(net, c_data + c_gpu - rest)
    count += floor(net / (c_data + c_gpu))
    if net % (c_data + c_gpu) > c_data:
        count += 1
    return count
