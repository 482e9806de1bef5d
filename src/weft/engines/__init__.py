"""What runs jobs: one module per engine."""
