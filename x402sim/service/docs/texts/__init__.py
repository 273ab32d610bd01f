"""The long texts of the documentation, one file each; an @word in them is filled in."""

import re
from functools import cache
from importlib.resources import files


def text(name: str, **words: str) -> str:
    """Return the text of that file, each @word that is given replaced.

    Braces and every other @ stay, because the texts are full of JSON and shell.
    """
    return re.sub(r"@(\w+)", lambda found: words.get(found[1], found[0]), _read(name))


@cache
def _read(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
