"""Commands that need no service: simulate, compare, list."""
