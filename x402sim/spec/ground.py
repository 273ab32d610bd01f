"""The ground of a demand: the sentences of the specification that it comes from.

A demand that the specification states is explicit, and one that follows from its sentences is
derived; these can be a MUST. A demand of the kit itself is ours, and a SHOULD. Where the
specification is silent, the suite observes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from x402sim.spec.sentences import Sentence, sentence


class GroundKind(StrEnum):
    """The kind of a ground."""

    EXPLICIT = "explicit"
    """A sentence of the specification says it."""
    DERIVED = "derived"
    """It follows from sentences of the specification."""
    OURS = "ours"
    """The specification does not say it; the kit demands it."""
    SILENT = "silent"
    """The specification leaves it open; nothing is demanded."""


BINDING = (GroundKind.EXPLICIT, GroundKind.DERIVED)
"""The kinds of grounds on which a demand can be a MUST."""


_KINDS = {
    "": GroundKind.EXPLICIT,
    "so": GroundKind.DERIVED,
    "because": GroundKind.OURS,
    "open": GroundKind.SILENT,
}
"""The word before the reason, where a ground is written down."""
_WANTED = {
    GroundKind.EXPLICIT: "an explicit ground names the sentences that state the demand",
    GroundKind.DERIVED: "a derived ground names its sentences, and the step from them",
    GroundKind.OURS: "a demand of the kit says why it is made",
    GroundKind.SILENT: "an observation names the sentences that leave it open, or says why",
}


@dataclass(frozen=True, slots=True)
class Ground:
    """The ground of a demand: the sentences that state it, and why it follows from them.

    `why` is the step of a derived ground, and the reason of ours; an explicit ground has none.
    """

    kind: GroundKind
    sentences: tuple[Sentence, ...]
    why: str = ""

    @property
    def told(self) -> tuple[str, ...]:
        """The sentences in quotation marks, each with its section, and then why."""
        word = {GroundKind.DERIVED: "so: ", GroundKind.OURS: "because: "}.get(self.kind, "")
        return (*map(str, self.sentences), *([word + self.why] if self.why else ()))


def explicit(*sentences: str) -> Ground:
    """Return the ground of what these sentences state; each is named as `sentence` takes it.

    This and the next three raise `ValueError` for a sentence that is unknown or ambiguous, and if
    anything is missing.
    """
    return _ground(GroundKind.EXPLICIT, sentences)


def derived(*sentences: str, so: str) -> Ground:
    """Return the ground of what follows from these sentences, with the step from them."""
    return _ground(GroundKind.DERIVED, sentences, so)


def ours(*sentences: str, because: str) -> Ground:
    """Return the ground of a demand of the kit, to which these sentences are related."""
    return _ground(GroundKind.OURS, sentences, because)


def silent(*sentences: str, why: str = "") -> Ground:
    """Return the ground of an observation, as these sentences leave it open."""
    return _ground(GroundKind.SILENT, sentences, why)


def _ground(kind: GroundKind, names: Sequence[str], why: str = "") -> Ground:
    is_whole = {
        GroundKind.EXPLICIT: bool(names),
        GroundKind.DERIVED: bool(names and why),
        GroundKind.OURS: bool(why),
        GroundKind.SILENT: bool(names or why),
    }
    if not is_whole[kind]:
        raise ValueError(_WANTED[kind])
    return Ground(kind, tuple(map(sentence, names)), why)


def read_ground(text: str) -> Ground:
    """Return the ground that a clause of `clauses.md` has: sentences, and then why.

    A sentence is a line with its section and opening words, "- 4.2: No valid proof of payment".
    If the demand only follows from them, "so: " and the step come next. "because: " and the reason
    make it a demand of the kit, to which they are related; "open" says that they leave it open.

    Raises `ValueError` for a sentence that is unknown or ambiguous, and if anything is missing.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    names = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    word, _, why = " ".join(lines[len(names) :]).partition(":")
    if word not in _KINDS:
        raise ValueError(f"after its sentences, a ground says so, because or open, not {word!r}")
    return _ground(_KINDS[word], names, why.strip())
