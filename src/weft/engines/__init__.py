"""What runs jobs: one module an engine."""
