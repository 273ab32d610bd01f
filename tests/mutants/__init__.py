"""Mutation testing of the conformance suite: defects of our own service, which the suite must see.

`mutant.py` says what one row is. How a defect is made is in `changes.py` (a rule left out, a setting, a
decision, a wrapped collaborator) and in `middleware.py`, by the requests and answers of `messages.py`;
`payments.py` has what defects of payment share. The modules named after a class of defects (`session.py`,
`settlement.py`, …) hold the rows, which `rows.py` collects; `honest.py` has the services in which the
suite must find nothing, `judging.py` judges them all, and `matrix.py` shows the verdicts.
`python -m tests.mutants` runs everything.
"""
