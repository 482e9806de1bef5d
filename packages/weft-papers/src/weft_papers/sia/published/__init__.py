"""Sia (SOSP 2023): ours beside the authors' simulator."""
