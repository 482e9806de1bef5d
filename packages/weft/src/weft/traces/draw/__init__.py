"""Distributions of synthetic workloads: arrivals, lengths, users, batch schedules."""
