"""Wrappers: policies around any policy, which shape what it sees before it decides."""
