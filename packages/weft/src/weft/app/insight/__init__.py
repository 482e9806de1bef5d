"""Reasons for waits, likely starts, and decisions of another policy: `weft explain`."""
