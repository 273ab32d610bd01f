"""The commands that play, compare and measure; each imports what it needs when it is used."""
