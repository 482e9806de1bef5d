"""Benchmarks: every claim about speed or quality comes from a command here."""
