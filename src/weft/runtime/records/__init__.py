"""What became of every job and what it used."""
