"""A world on one TCP port: the server, its paths, and the service only."""
