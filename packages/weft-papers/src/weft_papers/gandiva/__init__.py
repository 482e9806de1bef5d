"""Gandiva (OSDI 2018): time slicing, packing by trial, migration, grow and shrink."""
