"""The scheduler's knowledge of the cluster now: a fold of events."""
