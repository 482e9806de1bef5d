"""Answers of the API, as dataclasses that the command line reads as well."""
