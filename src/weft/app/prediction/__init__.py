"""How well predictors do on a trace, in time order and without looking ahead."""
