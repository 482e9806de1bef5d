"""Knowledge about jobs beyond what they ask for."""
