"""The version of this package, for all that must name it."""

__version__ = "0.2.0"
