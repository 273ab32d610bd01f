"""The world: every part wired together, and ways to start it."""
