"""Fragmentation gradient descent (USENIX ATC 2023)."""
