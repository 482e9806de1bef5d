"""Predictors of published schedulers, as their papers and artifacts have them."""
