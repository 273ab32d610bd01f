"""Serving over TCP: a whole world on one port, or the service only."""
