"""ElasticFlow (ASPLOS 2023)."""
