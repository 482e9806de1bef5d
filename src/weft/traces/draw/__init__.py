"""What synthetic workloads are drawn with: arrivals, lengths, users, batch schedules."""
