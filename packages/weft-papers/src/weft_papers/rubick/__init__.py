"""Rubick: GPUs and execution plans together, by the slopes of sensitivity curves."""
