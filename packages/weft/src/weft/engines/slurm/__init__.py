"""Slurm: a batch job for each attempt, or steps in allocations that are held."""
