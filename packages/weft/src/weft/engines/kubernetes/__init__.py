"""Kubernetes: an attempt's agents as pods on the nodes that were promised."""
