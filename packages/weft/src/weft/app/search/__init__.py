"""Sweeps that search: the space, the trials that fall behind, the next trial."""
