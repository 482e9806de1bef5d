"""What can be asked, a module a subject."""
