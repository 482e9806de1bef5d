"""Received GPU time of each user, against what they were entitled to."""
