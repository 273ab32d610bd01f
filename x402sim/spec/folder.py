"""Where the files of the conformance suite are: the checks of each subject, targets and tables."""

from pathlib import Path


def folder(subject: str = "service") -> Path:
    """Return the folder of a subject's files: in the checkout, or in the installed package."""
    package = Path(__file__).parents[1]
    places = (package / "conformance", package.parent / "conformance")
    return next(place for place in places if (place / "service").is_dir()) / subject
