"""Rules of tenants in all combinations, against a model that knows nothing of how they are kept."""
