"""The judge of payers: a world for each case, a command to start in it, and what its money did."""
