"""Words shown to people: safe to print, suggestions, short tracebacks, errors in a TOML file."""
