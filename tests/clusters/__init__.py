"""Throw-away clusters for tests: brought up and ended by pid, reachable from this machine only."""
