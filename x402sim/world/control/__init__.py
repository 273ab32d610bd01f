"""The control plane of a world: one file a topic, `app` the routes."""
