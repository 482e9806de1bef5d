"""Which samples per rank trains on, whatever the number of ranks."""
