"""Explores random worlds: draws them, plays them, audits them at their end, shrinks the failures.

`case.py` is a random world as data, `draw.py` draws one, `play.py` plays it with `steps.py`,
`audit.py` holds the invariants of a finished run, `shrink.py` finds the smallest world that still
fails, `campaign.py` plays thousands in several processes.
"""
