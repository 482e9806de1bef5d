"""Which jobs use a device together."""
