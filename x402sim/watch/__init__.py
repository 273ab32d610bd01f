"""A reverse proxy that records the payments of any service or facilitator: `x402sim watch`."""
