"""What a run costs: certified epsilon and delta. `account` and `Accountant` are the way in."""
