"""Who received how much, against what each was entitled to."""
