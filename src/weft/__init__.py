"""Weft: a deep-learning GPU-cluster scheduler, in simulation and for real."""

__version__ = "0.1.0"
