"""QSSF of Helios (SC 2021)."""
