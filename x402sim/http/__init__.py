"""HTTP for every client and application of the kit: bounded reading, values, bodies, errors."""
