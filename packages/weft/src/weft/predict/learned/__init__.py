"""Trees over the last ends of jobs alike, on top of `alike`; fitted with scikit-learn."""
