"""Proofs: theorems, cells, transforms and their errors. Only this room decides; it imports nothing that searches."""
