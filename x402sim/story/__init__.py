"""Stories that are played in a world: stages, payers, populations, invariants."""
