"""The transport between parts: links with latency, faults, queues and a shared cache."""
