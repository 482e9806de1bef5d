"""From the log and its snapshots back to a running scheduler."""
