"""Jobs and what they ask for, machines and how they are joined, workloads."""
