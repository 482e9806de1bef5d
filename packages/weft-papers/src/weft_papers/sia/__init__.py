"""Sia (SOSP 2023)."""
