"""IADeep (SC 2023): jobs share a GPU and their batch sizes are tuned to get on together."""
