"""Engines, which run jobs: one module per engine."""
