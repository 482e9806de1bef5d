"""Facts and orders: events, actions, reports of running jobs."""
