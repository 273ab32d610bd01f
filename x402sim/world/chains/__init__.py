"""The chain backends of a world, as objects that declare their capabilities."""
