"""Storage of the event log."""
