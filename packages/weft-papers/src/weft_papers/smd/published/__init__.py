"""SMD beside Optimus, a fixed ratio of servers to workers, and first come first served."""
