"""The judge of payers: for each case a world, a command to start there, and a count of the
money."""
