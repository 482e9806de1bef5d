"""Checkpoints: when they are due, how they are written, and what is in them."""
