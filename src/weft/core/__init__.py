"""What everything shares: domain, state, the scheduling step. Only stdlib and numpy."""
