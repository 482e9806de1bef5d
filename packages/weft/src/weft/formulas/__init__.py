"""Formulas of papers: the simulator's truth and the policies' belief alike."""
