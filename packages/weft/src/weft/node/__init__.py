"""One node's side of real jobs: agents, ranks, warm processes, stage tokens."""
