"""The order of jobs."""
