"""Spot GPUs with a promised hour: forecast, quota, victims and the wrapper that uses them."""
