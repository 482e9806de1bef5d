"""What each user received, against what they were entitled to."""
