"""Text and tables that a person sees in a terminal."""
