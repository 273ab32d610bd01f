"""The commands, one file each; each imports what it needs when it runs."""
