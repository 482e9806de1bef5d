"""A live scheduler: the driver in real time, its records, and recovery after a crash."""
