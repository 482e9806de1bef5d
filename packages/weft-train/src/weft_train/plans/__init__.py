"""Trains one model under any execution plan, and goes from one plan to another."""
