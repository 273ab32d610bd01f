"""Hostile answers, and every reader of answers."""
