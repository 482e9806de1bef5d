"""Weft's own policy: what sizes are worth, the program that chooses, and two jobs a device."""
