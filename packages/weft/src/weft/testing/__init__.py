"""Tools to test a policy with: views from a line of text, and the contract as one check."""

from weft.testing.build import cluster_of, view_of, with_knowledge
from weft.testing.check import check_policy

__all__ = ["check_policy", "cluster_of", "view_of", "with_knowledge"]
