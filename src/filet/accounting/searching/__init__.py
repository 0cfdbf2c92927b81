"""What to try next: guesses, tilts, refinement. A wrong guess costs time or width, never truth."""
