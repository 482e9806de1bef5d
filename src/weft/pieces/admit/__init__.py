"""Who may start, and whether others are stopped for it."""
