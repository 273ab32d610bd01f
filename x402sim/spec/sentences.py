"""The sentences of the specification.

`sentences.md` is the specification, word for word, with one sentence a line. A sentence is a
line of prose, a list item or a table's row; the titles of sections and columns are none. Each
is named by its section and its opening words: "5: The amount must equal".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise

_TITLE = re.compile(r"#+ (?P<section>\d+(\.\d+)?)?")
_LIST_MARK = re.compile(r"^(- |\d+\. )")
_RULE = re.compile(r"\|[-|]+\|")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence: its section, such as "4.1" ("0" before the first), and its words.

    The cells of a table's row are separated by " | ".
    """

    section: str
    text: str

    def __str__(self) -> str:
        """Return the section and the sentence in quotation marks."""
        return f"{self.section}: “{self.text}”"


def _read(document: str) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown text that has one sentence a line."""
    section = "0"
    lines = document.splitlines()
    for line, following in pairwise([*lines, ""]):
        text = line.strip()
        if title := _TITLE.match(text):
            section = title["section"] or section
        elif text.startswith("|"):
            is_head = _RULE.fullmatch(following.strip()) is not None
            if not is_head and not _RULE.fullmatch(text):
                yield Sentence(section, text.strip("| "))
        elif text:
            yield Sentence(section, _LIST_MARK.sub("", text))


def document() -> str:
    """Return the specification as Markdown, with one sentence a line."""
    return files(__package__).joinpath("sentences.md").read_text(encoding="utf-8")


SENTENCES: tuple[Sentence, ...] = tuple(_read(document()))
"""Every sentence of the specification, in its order."""

TITLES: dict[str, str] = dict(re.findall(r"^#+ ([\d.]*\d)\.? (.+)$", document(), re.MULTILINE))
"""The title of each section."""


def sentence(name: str) -> Sentence:
    """Return the sentence named "section: its opening words".

    A sentence that consists of exactly these words comes before one that begins with them.
    Raises `ValueError` if there is none, or if several begin so.
    """
    section, _, words = name.partition(": ")
    mine = [each for each in SENTENCES if each.section == section]
    exact = [each for each in mine if each.text == words]
    found = exact or [each for each in mine if words and each.text.startswith(words)]
    if len(found) != 1:
        how = "begins with" if not found else "is meant alone by"
        choice = found or mine
        known = "".join(f"\n  {each}" for each in choice) or f" (there is no section {section!r})"
        raise ValueError(f"no sentence of the specification {how} {name!r}:{known}")
    return found[0]
