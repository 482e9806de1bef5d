"""Arena on what its authors measured."""
