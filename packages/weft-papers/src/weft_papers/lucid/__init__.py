"""Lucid (ASPLOS 2023): a profiler corner, interpretable scores, and pairs of jobs on a GPU."""
