"""Policies joined from parts: order, size, place, admission, sharing."""
