"""Average completion times that no schedule can beat; no code is shared with policies."""
