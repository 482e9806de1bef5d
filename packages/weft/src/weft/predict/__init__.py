"""Predictors of how long jobs will still take. A result always names the one that was used."""
