"""SLAQ (SoCC 2017)."""
