"""The judge: whether a log shows what its scheduler promised, by code that shares none of it."""
