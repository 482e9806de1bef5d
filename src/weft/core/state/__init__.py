"""What the scheduler knows of the cluster now: a fold of events."""
