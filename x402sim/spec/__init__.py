"""The book, as data: every clause of the specification, and what we decided where it is silent."""
