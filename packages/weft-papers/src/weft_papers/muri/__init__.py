"""Muri: interleaving jobs that use different resources on the same GPUs."""
