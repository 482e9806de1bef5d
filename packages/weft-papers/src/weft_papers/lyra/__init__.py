"""Lyra: loaned machines, elastic jobs."""
