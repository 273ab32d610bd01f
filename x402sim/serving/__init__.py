"""A world on a port: the server, its control API, its page and its log."""
