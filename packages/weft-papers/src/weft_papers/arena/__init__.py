"""Arena: kinds, sizes and parallelism searched together, step by step."""
