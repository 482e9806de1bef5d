"""Four jobs with different bottlenecks on one GPU, by who may use what when."""
