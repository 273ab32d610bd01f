"""The jury of the conformance suite: defects of our own service, which the suite must see.

`mutant.py` says what one row is, `change.py` how a defect is made: a rule left out, a setting,
a decision, a wrapped collaborator (`wrapper.py`) or middleware (`middleware.py`). The modules
named after a class (`binding.py`, `replay.py`, …) hold the rows, `honest.py` the services in
which the suite must find nothing, `jury.py` judges them, and `matrix.py` shows the verdicts.
`python -m tests.mutants` runs everything.
"""
