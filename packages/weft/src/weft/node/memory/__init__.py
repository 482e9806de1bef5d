"""Allocations of device memory that wait: the preloaded guard, and the book of devices."""
