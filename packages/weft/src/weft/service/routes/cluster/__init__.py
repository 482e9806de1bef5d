"""Routes about the cluster: machines, policies, what happens and what would."""
