"""Asking the policy: in which process, what if it fails, and why jobs wait."""
