"""Pollux beside the numbers its authors and Sia's published."""
