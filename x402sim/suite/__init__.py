"""The conformance suite's engine: what a target is, what a check is, and how they meet.

The checks themselves are in the folder `conformance`, a file a section of the specification.
"""
