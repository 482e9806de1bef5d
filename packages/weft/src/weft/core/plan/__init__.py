"""Policies: what they see, what they answer, and the rules for their answers."""
