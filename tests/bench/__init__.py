"""The benchmark: how fast x402sim is, compared with theoretical limits; `python -m tests.bench`.

The sides of a comparison alternate in one process, so that a slow machine slows both: the
ratios hold on other machines, the absolute numbers do not.
"""
