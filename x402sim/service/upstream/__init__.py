"""The service's own calls: to the facilitator, the chain explorer and a node's JSON-RPC.

`facilitator.py` says what a dialect of the facilitator is; `cronos.py` is one. A new dialect is one
more file like it, given as `Environment.dialect`. `chain.py` queries the node and the explorer.
"""
