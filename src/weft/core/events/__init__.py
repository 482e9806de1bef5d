"""What happened and what should happen: events, actions, reports of running jobs."""
