"""AlloX (EuroSys 2020)."""
