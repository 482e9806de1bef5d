"""Real training jobs on one GPU as `weft profile` measures them: alone, in pairs, their noise."""
