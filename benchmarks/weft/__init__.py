"""Weft beside Sia, Pollux, Gavel and shortest-remaining-first on Sia's workloads."""
