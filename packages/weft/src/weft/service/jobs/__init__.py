"""Jobs as the API shows them: which one is meant, its state, when it will start."""
