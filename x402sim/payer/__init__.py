"""The payer: a wallet that signs, and httpx authentication that pays."""
