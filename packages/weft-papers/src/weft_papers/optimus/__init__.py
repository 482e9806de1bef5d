"""Optimus by its parts: GPUs of jobs that reduce among themselves, and workers and servers."""
