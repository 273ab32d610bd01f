"""What every HTTP client and application of the kit shares: bounded reading, bodies, errors."""
