"""Processes of an attempt that do not run for a while: frozen, or suspended to host memory."""
