"""Where the files of the conformance suite are: its checks, targets and tables."""

from pathlib import Path


def folder() -> Path:
    """Return the folder of the suite's files: in the checkout, or in the installed package."""
    package = Path(__file__).parents[1]
    places = (package / "conformance", package.parent / "conformance")
    return next(place for place in places if (place / "targets").is_dir())
