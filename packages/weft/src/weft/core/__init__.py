"""The core that all else builds on: domain, state, the scheduling step. Only stdlib and numpy."""
