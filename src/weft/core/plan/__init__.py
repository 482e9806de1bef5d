"""What a policy is: what it sees, what it answers, and the rules for its answers."""
