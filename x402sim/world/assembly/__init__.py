"""A running world: its parts, and the code that builds them."""
