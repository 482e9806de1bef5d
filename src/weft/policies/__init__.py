"""Published schedulers, one paper a file."""
