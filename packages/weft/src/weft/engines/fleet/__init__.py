"""Engines of several nodes: everything that does not depend on how processes are started."""
