"""Several machines through Ray: one runner on each of them, which starts agents for Weft."""
