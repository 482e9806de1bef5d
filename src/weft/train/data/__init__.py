"""Which samples a rank trains on, whatever the number of ranks."""
