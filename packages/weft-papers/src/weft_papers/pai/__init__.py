"""Predictors of "MLaaS in the wild" (NSDI 2022)."""
