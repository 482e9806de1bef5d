"""Tiresias (NSDI 2019)."""
