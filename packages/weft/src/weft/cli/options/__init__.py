"""Options that several commands share, and files that hold them."""
