"""How long jobs will still take. A result always names the predictor that was used."""
