"""The ranks of a job: how they meet, and how they change while they train."""
