"""Themis (NSDI 2020): apps bid for GPUs by finish-time fairness, for a lease at a time."""
