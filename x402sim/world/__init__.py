"""A world: its options, its running parts, virtual time, links and faults."""
