"""Reproductions of published results, ours beside theirs."""
