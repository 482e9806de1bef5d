"""Measurements of an attempt by its agent: steps that watchers count, the device, the host."""
