"""Formats of public trace files, one module a family."""
