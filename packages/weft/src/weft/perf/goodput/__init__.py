"""Goodput: useful samples per second by kind, count and batch; measured, fitted, believed."""
