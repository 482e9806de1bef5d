"""The part everything shares: domain, state, the scheduling step. Standard library and numpy only."""
