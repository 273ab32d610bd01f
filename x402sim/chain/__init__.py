"""The chain behind a seam: `base` is the seam, `ledger` the in-memory side of it."""
