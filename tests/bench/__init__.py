"""The benchmark: how fast x402sim is, compared with limits; `python -m tests.bench`, `speed.md`."""
