"""What an agent sees of its attempt: steps that watchers count, the device, the host."""
