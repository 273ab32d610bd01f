"""The jury of the conformance suite: defects of our own service, which the suite must see.

`change.py` says how a defect is put in, `mutant.py` what one row is, the modules named
after a class (`binding.py`, `replay.py`, …) hold the rows, `honest.py` the services in
which nothing may be found, `jury.py` judges them all in parallel, and `matrix.py` shows
what came out. `python -m tests.mutants` runs everything.
"""
