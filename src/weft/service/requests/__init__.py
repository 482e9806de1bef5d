"""What the API takes: job files, sweeps, and jobs written as files again."""
