"""A world on one TCP port: the server, its control plane, the service alone."""
