"""Twelve real training jobs on one GPU: one at a time, sharing by time slices, sharing by MPS."""
