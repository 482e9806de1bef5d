"""What keeps attempts apart: claims, locks, users, control groups, time limits."""
