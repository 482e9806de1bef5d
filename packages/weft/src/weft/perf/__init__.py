"""Speeds of jobs on their allocations, and costs of restarts."""
