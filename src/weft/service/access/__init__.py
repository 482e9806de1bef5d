"""Who asks and what they may do: tokens, sign-ins, limits, the audit log."""
