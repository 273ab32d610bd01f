"""The sentences of the specification, and the ground of a demand: the sentences that support it.

`sentences.md` is the specification, word for word, with one sentence per line. A sentence is a line
of prose, a list item or a row of a table; titles of sections and columns are not. A sentence is
named by section and opening words: "5: The amount must equal".

A demand that the specification states is explicit; a demand that follows from its sentences is
derived. Both can be a MUST. A demand that only the kit makes is ours, and a SHOULD. Where the
specification is silent, the suite only observes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from itertools import pairwise
from pathlib import Path


def folder(subject: str) -> Path:
    """Return the folder of a subject's files: in the checkout, or in the installed package."""
    package = Path(__file__).parents[1]
    places = (package / "conformance", package.parent / "conformance")
    return next(place for place in places if (place / "service").is_dir()) / subject


_TITLE = re.compile(r"#+ (?P<section>\d+(\.\d+)?)?")
_LIST_MARK = re.compile(r"^(- |\d+\. )")
_RULE = re.compile(r"\|[-|]+\|")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence: the section, such as "4.1" ("0" before the first), and the words.

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

    If several sentences begin with these words, a sentence of no other words counts. Raises
    `ValueError` if there is none, or if several begin so.
    """
    section, _, words = name.partition(": ")
    mine = [quoted for quoted in SENTENCES if quoted.section == section]
    exact = [quoted for quoted in mine if quoted.text == words]
    found = exact or [quoted for quoted in mine if words and quoted.text.startswith(words)]
    if len(found) != 1:
        how = "begins with" if not found else "is meant alone by"
        choice = found or mine
        known = "".join(f"\n  {near}" for near in choice) or f" (there is no section {section!r})"
        raise ValueError(f"no sentence of the specification {how} {name!r}:{known}")
    return found[0]


class GroundType(StrEnum):
    """The source of a demand: a text that states or implies the demand, or the kit."""

    EXPLICIT = "explicit"
    """A sentence of the specification states it."""
    DERIVED = "derived"
    """It follows from sentences of the specification."""
    OURS = "ours"
    """Only the kit demands it."""
    SILENT = "silent"
    """The specification is silent; nothing is demanded."""


BINDING = (GroundType.EXPLICIT, GroundType.DERIVED)
"""The kinds of grounds on which a demand can be a MUST."""


_KINDS = {
    "": GroundType.EXPLICIT,
    "so": GroundType.DERIVED,
    "because": GroundType.OURS,
    "open": GroundType.SILENT,
}
"""The kind of ground by the word before its reason in `clauses.md`."""
_WANTED = {
    GroundType.EXPLICIT: "an explicit ground names the sentences that state the demand",
    GroundType.DERIVED: "a derived ground names its sentences, and the step from them",
    GroundType.OURS: "a demand of the kit says why it is made",
    GroundType.SILENT: "an observation names the sentences that leave it open, or says why",
}


@dataclass(frozen=True, slots=True)
class Ground:
    """The ground of a demand: sentences, and why the demand follows from them.

    `why` is the step of a derived ground, or the reason of ours; an explicit ground has none.
    """

    kind: GroundType
    sentences: tuple[Sentence, ...]
    why: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentences in quotation marks, each with its section, and then why."""
        word = {GroundType.DERIVED: "so: ", GroundType.OURS: "because: "}.get(self.kind, "")
        return (*map(str, self.sentences), *([word + self.why] if self.why else ()))


def explicit(*sentences: str) -> Ground:
    """Return the ground of what these sentences state; each is named as `sentence` takes it.

    This and the next three raise `ValueError` for a sentence that is unknown or ambiguous, and if
    anything is missing.
    """
    return _ground(GroundType.EXPLICIT, sentences)


def derived(*sentences: str, so: str) -> Ground:
    """Return the ground of a demand that follows from sentences, with the step."""
    return _ground(GroundType.DERIVED, sentences, so)


def ours(*sentences: str, because: str) -> Ground:
    """Return the ground of a demand of the kit, to which these sentences are related."""
    return _ground(GroundType.OURS, sentences, because)


def silent(*sentences: str, why: str = "") -> Ground:
    """Return the ground of an observation, as these sentences leave it open."""
    return _ground(GroundType.SILENT, sentences, why)


def _ground(kind: GroundType, names: Sequence[str], why: str = "") -> Ground:
    is_whole = {
        GroundType.EXPLICIT: bool(names),
        GroundType.DERIVED: bool(names and why),
        GroundType.OURS: bool(why),
        GroundType.SILENT: bool(names or why),
    }
    if not is_whole[kind]:
        raise ValueError(_WANTED[kind])
    return Ground(kind, tuple(map(sentence, names)), why)


def read_ground(text: str) -> Ground:
    """Return the ground that a clause of `clauses.md` has: sentences, and then why.

    A sentence is a line with its section and opening words, "- 4.2: No valid proof of payment". If
    the demand only follows from the sentences, "so: " and the step come next. "because: " and the
    reason follow the sentences behind a demand of the kit; "open" follows sentences that leave the
    question open.

    Raises `ValueError` for a sentence that is unknown or ambiguous, and if anything is missing.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    names = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    word, _, why = " ".join(lines[len(names) :]).partition(":")
    if word not in _KINDS:
        raise ValueError(f"after its sentences, a ground says so, because or open, not {word!r}")
    return _ground(_KINDS[word], names, why.strip())
