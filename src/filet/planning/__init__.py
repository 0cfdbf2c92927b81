"""Planning of a run: calibration, plans and frontiers."""
