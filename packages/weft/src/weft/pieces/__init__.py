"""Reusable decisions, each a pure function; policies are built of them."""
