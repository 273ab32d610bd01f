"""The service's own calls: to the facilitator, the chain explorer and a node's JSON-RPC.

`facilitator.py` speaks the dialect of the settings (`dialect.py`); `cronos.py` is one. A new
dialect of the facilitator is one more file like it, chosen by `Settings.dialect`.
"""
