"""Wrappers that keep to what tenants may hold: quotas, loans, reservations, fairness."""
