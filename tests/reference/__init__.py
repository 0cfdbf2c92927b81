"""Slow reference implementations, the judges of filet's accountant."""
