"""Connections to an agent: ranks that report, and people with a terminal."""
