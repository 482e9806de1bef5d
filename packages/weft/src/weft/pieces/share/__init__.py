"""Sharing: jobs that use a device together."""
