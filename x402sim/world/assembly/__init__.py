"""The recipe of a world, and the code that builds its parts."""
