"""What happened to every job and what it used."""
