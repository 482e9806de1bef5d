"""The REST API around a live scheduler."""
