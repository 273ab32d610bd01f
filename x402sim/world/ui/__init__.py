"""The live page of a server, /_sim/ui: its files, what it is told, and payments made from it."""
