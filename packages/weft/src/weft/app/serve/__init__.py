"""Wire a live scheduler."""
