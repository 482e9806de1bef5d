"""3Sigma (EuroSys 2018)."""
