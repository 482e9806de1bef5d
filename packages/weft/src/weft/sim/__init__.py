"""The simulator: one driver of `Scheduler.step`, with a virtual clock."""
