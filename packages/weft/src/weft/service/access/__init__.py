"""Access to the API: tokens, sign-ins, limits, the audit log."""
