"""How much each job gets."""
