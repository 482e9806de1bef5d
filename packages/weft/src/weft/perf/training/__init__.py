"""Jobs of workers and parameter servers, and jobs whose loss is followed."""
