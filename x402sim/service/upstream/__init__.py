"""The service's own calls: to the facilitator, the chain explorer and a node's JSON-RPC.

`facilitator.py` calls a facilitator in Cronos' dialect, and `standard.py` one of the x402 standard;
`Environment.dialect` chooses. `upto.py` settles what was used. `chain.py` queries the node and the
explorer.
"""
