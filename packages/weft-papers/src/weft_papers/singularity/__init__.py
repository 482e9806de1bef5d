"""Singularity: tiers of service by GPU fraction; jobs shrink and move, and are never killed."""
