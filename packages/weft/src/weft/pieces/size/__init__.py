"""Sizes: how much each job gets."""
