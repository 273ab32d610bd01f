"""Where a story is played: in one process, over TCP, or against a deployment."""
