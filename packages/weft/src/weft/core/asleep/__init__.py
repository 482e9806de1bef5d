"""Jobs that gave their GPUs back without ending: how they are stopped, kept and woken."""
