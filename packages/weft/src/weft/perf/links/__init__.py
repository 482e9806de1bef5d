"""Effect of links inside nodes and between them on the speed of jobs."""
