"""AntMan (OSDI 2020): guaranteed jobs own their devices, opportunistic ones live in the gaps."""
