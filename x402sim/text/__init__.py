"""Words shown to people: safe to print, suggestions, short tracebacks, TOML files, templates."""
