"""How messages travel between parts: links with latency, and faults."""
