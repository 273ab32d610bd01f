"""The version of this package, and its citation; CITATION.cff must match."""

VERSION = "0.1.0"
AUTHORS, YEAR = "The x402sim authors", 2026
"""The authors, and the year in which this version was released."""


def citation(version: str | None = VERSION) -> str:
    """Return how a version is cited: authors, year, title, version; without what is not known."""
    year = f" ({YEAR})" if version == VERSION else ""
    return f"{AUTHORS}{year}: x402sim{f', version {version}' if version else ''} [software]"
