"""The driver of a real cluster: events in, decisions made, requests to the engine out."""
