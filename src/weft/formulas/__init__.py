"""Formulas for jobs that share devices: the simulator's truth and the policies' belief alike."""
