"""What a story plays with: the world, its payers, scenarios, stages, invariants."""
