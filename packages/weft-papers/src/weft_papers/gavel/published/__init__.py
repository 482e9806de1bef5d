"""Gavel (OSDI 2020) on the authors' traces, beside what their simulator says."""
