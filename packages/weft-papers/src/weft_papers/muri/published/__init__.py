"""Muri (SIGCOMM 2022) on the authors' traces, beside what their simulator says."""
