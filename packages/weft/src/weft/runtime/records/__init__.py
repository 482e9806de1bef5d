"""Records of what happened to every job and what it used."""
