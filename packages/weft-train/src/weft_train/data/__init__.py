"""Samples for each rank, with any number of ranks."""
