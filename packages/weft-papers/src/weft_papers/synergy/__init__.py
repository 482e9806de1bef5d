"""Synergy (OSDI 2022): CPU cores and host memory by what jobs make of them."""
