"""Attempts seen from the engine: started, listened to, cleared away."""
