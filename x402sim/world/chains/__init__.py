"""The chains a world can run on, as objects that carry their capabilities."""
