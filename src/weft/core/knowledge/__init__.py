"""What may be known about a job beyond what it asks for."""
