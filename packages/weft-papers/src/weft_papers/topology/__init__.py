"""Topology-aware scheduling: the utility of a mapping, and how one is found."""
