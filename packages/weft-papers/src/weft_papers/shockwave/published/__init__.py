"""Shockwave (NSDI 2023) on the authors' traces, beside the results they ship."""
