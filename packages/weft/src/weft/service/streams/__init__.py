"""Changes, sent to those who watch: events, rows, and the past."""
