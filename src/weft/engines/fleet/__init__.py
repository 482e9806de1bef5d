"""Engines of several nodes: everything that is the same whoever starts the processes there."""
