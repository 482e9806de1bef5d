"""Routes about people: signing in, accounts, quotas, reservations, pages."""
