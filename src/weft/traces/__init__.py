"""Workloads: public trace files and calibrated synthetic ones, all as `weft.core.model.trace.Trace`."""
