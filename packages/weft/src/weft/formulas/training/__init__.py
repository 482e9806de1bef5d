"""Progress of trainings: loss, batch regimes, workers and parameter servers."""
