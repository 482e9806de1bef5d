"""All policies on all built-in workloads: what people feel, bounds, intervals and ranks."""
