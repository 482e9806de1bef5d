"""Routes about jobs."""
