"""Measure what counts lose in windows too large for a variable for each job and round."""

from __future__ import annotations

from time import process_time

import numpy as np

from weft_papers.shockwave.packing import SMALL, plan_rounds
from weft_papers.shockwave.welfare import RoundWindow, choose_rounds, value

WINDOWS, ROUNDS, ROUND_S, KAPPA = 30, 20, 120.0, 1e-5


def show_packing() -> int:
    """Print by how much plans are worth less than those of the published program."""
    lost, took = [], np.zeros(2)
    for seed in range(WINDOWS):
        window = draw(seed)
        began = process_time()
        ours = plan_rounds(window, KAPPA)
        between = process_time()
        theirs = choose_rounds(window, KAPPA)
        took += (between - began, process_time() - between)
        assert ours is not None
        assert theirs is not None
        best = value(window, theirs.sum(axis=1), KAPPA)
        lost.append((best - ours.worth) / abs(best))
    print(
        f"{WINDOWS} windows of more than {SMALL} jobs and rounds with gangs: plans are worth"
        f" {np.mean(lost):.2%} less than by the published program on average, at most"
        f" {np.max(lost):.2%}, more in {np.mean(np.array(lost) < 0.0):.0%};"
        f" {took[0]:.1f} s of CPU time against {took[1]:.1f}"
    )
    return 0


def draw(seed: int) -> RoundWindow:
    """Jobs of 1 to 8 GPUs, each somewhere in its training, that ask for more than there is."""
    rng = np.random.default_rng([seed, 41])
    count = int(rng.integers(8, 17))
    gangs = rng.choice([1.0, 2.0, 3.0, 4.0, 8.0], count)
    epochs = rng.integers(5, 60, count).astype(float)
    over = np.floor(epochs * rng.uniform(0.0, 0.9, count))
    epoch_s = rng.uniform(30.0, 300.0, count)
    left = (epochs - over) * epoch_s
    gpus = float(rng.choice([8.0, 12.0]))
    weight, least = np.ones(count), np.zeros(count)
    return RoundWindow(gangs, epochs, over, epoch_s, left, weight, gpus, ROUNDS, ROUND_S, least)
