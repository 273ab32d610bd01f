"""The judge of payers: for each case a world, a command started there, and a count of the
money."""
