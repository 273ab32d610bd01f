"""Judges a facilitator: a command, a Python application, or a running facilitator at a URL."""
