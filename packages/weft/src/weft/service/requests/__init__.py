"""Requests to the API: job files, sweeps, and jobs written as files again."""
