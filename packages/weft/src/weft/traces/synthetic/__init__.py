"""Workloads drawn from a seed: calibrated to public traces, or by the laws of papers."""
