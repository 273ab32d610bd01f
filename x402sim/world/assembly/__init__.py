"""The recipe of a world, and its parts wired together."""
