"""The loads that other queues publish, on a service with the simulated engine in real time."""
