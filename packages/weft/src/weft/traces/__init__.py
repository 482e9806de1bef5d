"""Workloads: public trace files and calibrated synthetic ones, as `weft.core.model.trace`."""
