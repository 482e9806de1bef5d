"""What changes, sent to those who watch: events, rows, and the past."""
