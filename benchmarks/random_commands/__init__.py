"""Random command lines and input files for `weft`: none may end in a traceback."""
