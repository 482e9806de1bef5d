"""Published schedulers, wrappers and predictors as plug-ins of Weft: a folder for each."""
