"""Watches over jobs that share devices as they run: probes, turns and promises."""
