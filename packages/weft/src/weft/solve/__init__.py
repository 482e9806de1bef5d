"""Own solvers: numbers in, numbers out; nothing here knows a job or a node."""
