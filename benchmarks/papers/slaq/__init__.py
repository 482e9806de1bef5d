"""SLAQ beside fair sharing."""
