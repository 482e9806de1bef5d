"""Speeds of jobs that share devices."""
