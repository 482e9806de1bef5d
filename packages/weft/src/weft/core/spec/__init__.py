"""Parts by name: how they are written, registered and given their parameters."""
