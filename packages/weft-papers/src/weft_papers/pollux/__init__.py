"""Pollux: speed-ups over a fair share, a genetic search, and machines shown as equals."""
