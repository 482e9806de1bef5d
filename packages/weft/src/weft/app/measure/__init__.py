"""Measure training scripts on this machine."""
