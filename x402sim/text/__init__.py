"""Text for people: escaping, suggestions, short tracebacks, TOML files, templates."""
