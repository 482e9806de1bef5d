"""Admission: the jobs that may start, and whether others are stopped for it."""
