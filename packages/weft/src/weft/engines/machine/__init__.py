"""One machine: its devices, its users, and an attempt's part of it."""
