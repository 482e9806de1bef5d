"""Other people's training scripts, as they are, on one GPU: with Weft and without."""
