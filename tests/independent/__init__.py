"""Services that others wrote from the specification alone, and what the suite says of them."""
