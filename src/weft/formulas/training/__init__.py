"""How trainings progress: loss, batch regimes, workers and parameter servers."""
