"""Commands about your jobs."""
