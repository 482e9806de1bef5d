"""Astraea: the policy and its parts."""
