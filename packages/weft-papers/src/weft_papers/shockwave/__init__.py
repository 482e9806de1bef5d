"""Shockwave: fairness and makespan for jobs that change as they train."""
