"""What a story uses: the world, its payers, scenarios, invariants."""
