"""A pay-per-request perp quote service (x402)."""
