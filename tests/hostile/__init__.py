"""What a stranger, a tenant or a job may send, and what it must not do to others."""
