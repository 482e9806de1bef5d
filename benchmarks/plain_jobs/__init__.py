"""Our own policy on jobs of one size, drawn as eight published traces were."""
