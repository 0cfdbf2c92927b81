"""Fuzz targets for what filet reads: run files, saved states and the command line. See README.md."""
