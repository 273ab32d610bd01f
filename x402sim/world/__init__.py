"""The world: its parts, chains, stages, control API, server and scenarios."""
