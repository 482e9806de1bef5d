"""What the API answers, as dataclasses that the command line reads as well."""
