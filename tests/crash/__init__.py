"""Real crashes: `serve --db` and `service --db` are killed under load, and the ledger is audited.

`python -m tests.crash` runs the campaign and prints its figures; `judge.py` lists what must hold.
"""
