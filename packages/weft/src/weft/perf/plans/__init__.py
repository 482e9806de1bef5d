"""Speed and memory of execution plans."""
