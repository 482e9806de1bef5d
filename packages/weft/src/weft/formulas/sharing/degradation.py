"""A job's loss beside others, at a batch other than its own (Cai et al., IADeep, SC 2023)."""

from __future__ import annotations


def degradation(stretch: float, growth: float, efficiency: float) -> float:
    """Progress alone at the initial batch over progress now; 1 is no loss.

    `stretch` is the step time now over the one alone at the initial batch, `growth` the batch
    over the initial one, `efficiency` the progress of a sample.
    """
    return stretch / growth / efficiency
