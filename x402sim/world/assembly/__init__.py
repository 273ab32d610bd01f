"""What a world is made of: the recipe, its chain, its parts wired together."""
