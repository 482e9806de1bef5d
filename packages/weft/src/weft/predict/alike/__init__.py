"""The default predictor: what jobs alike took, given how far a job has come."""
