"""Many payers at once: when they come, what they do, and how they are played."""
