"""The world: its parts, chains, stages, control plane, server and stories."""
