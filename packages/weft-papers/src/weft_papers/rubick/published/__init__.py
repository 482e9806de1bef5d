"""Rubick on what its authors measured."""
