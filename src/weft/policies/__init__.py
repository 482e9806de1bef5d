"""Published schedulers, one paper per file."""
