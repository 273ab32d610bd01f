"""Judges a facilitator: a command, an application of Python, or one that runs behind a URL."""
