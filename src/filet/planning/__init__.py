"""How to run: calibration, plans and frontiers."""
