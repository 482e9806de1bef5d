"""Placement: the devices of a gang."""
