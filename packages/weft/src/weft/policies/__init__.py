"""Policies that others build on, and Weft's own; published systems are in `weft_papers`."""
