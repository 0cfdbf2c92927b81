"""Privacy accounting: certified epsilon and delta. `account` and `Accountant` are the way in."""
