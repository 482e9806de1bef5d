"""Who uses a device together with whom."""
