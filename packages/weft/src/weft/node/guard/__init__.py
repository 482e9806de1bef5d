"""Guards that keep attempts apart: claims, locks, users, control groups, time limits."""
