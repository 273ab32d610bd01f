"""Random worlds: Hypothesis draws and shrinks them, each is played, and audited at its end.

`case.py` is a world as data, and how it is drawn; `play.py` plays it with `steps.py`, `audit.py` judges the
finished run, `campaign.py` plays many in several processes.
"""
