"""The service of the specification: payment gate, settlement, sessions, indexer.

The guide's glossary explains the words of its docstrings: `x402sim/guide/glossary.md`.
"""
