"""What links inside nodes and between them do to the speed of jobs."""
