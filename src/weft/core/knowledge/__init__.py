"""What may be known of a job beyond what it asks for."""
