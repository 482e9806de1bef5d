"""Which jobs may start, and whether others are stopped for it."""
