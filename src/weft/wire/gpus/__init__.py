"""How GPUs are: by their driver, by what jobs print, and by how long ranks take."""
