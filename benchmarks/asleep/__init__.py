"""What it is worth to put jobs to sleep, and whether nothing is ever lost by it."""
