"""The control API of a world: `app` has the routes, the other files one topic each."""
