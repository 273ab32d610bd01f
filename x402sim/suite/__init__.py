"""The conformance suite's engine: targets, checks, and running checks against a target.

The checks are in the folder `conformance`, one file for each topic.
"""
