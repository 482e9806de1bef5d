"""Values as JSON and as columns, and back."""
