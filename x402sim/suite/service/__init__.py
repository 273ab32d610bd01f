"""The judge of services of the specification: targets, checks, and running checks."""
