"""The way to a service and to a job: HTTP, terminals, forwarded ports."""
