"""The specification as data: every clause, and our decisions where it is silent."""
