"""The ground of a demand: the sentences of the specification that it comes from.

A demand that the specification states is explicit, and one that follows from its sentences is
derived; these can be a MUST. A demand of the kit itself is ours, and a SHOULD. Where the
specification is silent, the suite observes.
"""

from dataclasses import dataclass
from enum import StrEnum

from x402sim.spec.sentences import Sentence, sentence


class Kind(StrEnum):
    """The kind of a ground."""

    EXPLICIT = "explicit"
    """A sentence of the specification says it."""
    DERIVED = "derived"
    """It follows from sentences of the specification."""
    OURS = "ours"
    """The specification does not say it; the kit demands it."""
    SILENT = "silent"
    """The specification leaves it open; nothing is demanded."""


BINDING = (Kind.EXPLICIT, Kind.DERIVED)
"""The kinds of grounds on which a demand can be a MUST."""


_WHY = {Kind.EXPLICIT: "", Kind.DERIVED: "so: ", Kind.OURS: "because: ", Kind.SILENT: ""}


@dataclass(frozen=True, slots=True)
class Ground:
    """The ground of a demand: the sentences that state it, and why it follows from them.

    `why` is the step of a derived ground, and the reason of ours; an explicit ground has none.
    """

    kind: Kind
    sentences: tuple[Sentence, ...]
    why: str = ""

    @property
    def told(self) -> tuple[str, ...]:
        """The sentences in quotation marks, each with its section, and then why."""
        why = (f"{_WHY[self.kind]}{self.why}",) if self.why else ()
        return (*(str(each) for each in self.sentences), *why)


def explicit(*names: str) -> Ground:
    """Return the ground of a demand that the named sentences state.

    A name is a section and the sentence's opening words: "4.2: No valid proof of payment".
    Raises `ValueError` without a name, and for one that is unknown or ambiguous.
    """
    if not names:
        raise ValueError("an explicit ground names the sentences that state the demand")
    return Ground(Kind.EXPLICIT, tuple(map(sentence, names)))


def derived(*names: str, step: str) -> Ground:
    """Return the ground of a demand that follows from the named sentences; `step` says how.

    Raises `ValueError` as `explicit` does, and without a step.
    """
    if not names or not step:
        raise ValueError("a derived ground names its sentences, and the step from them")
    return Ground(Kind.DERIVED, tuple(map(sentence, names)), step)


def ours(why: str, *names: str) -> Ground:
    """Return the ground of a demand of the kit; `names` are sentences it is related to.

    Raises `ValueError` without a reason.
    """
    if not why:
        raise ValueError("a demand of the kit says why it is made")
    return Ground(Kind.OURS, tuple(map(sentence, names)), why)


def silent(*names: str, why: str = "") -> Ground:
    """Return the ground of an observation; `names` are the sentences that leave it open.

    Raises `ValueError` with neither a sentence nor a reason.
    """
    if not names and not why:
        raise ValueError("an observation names the sentences that leave it open, or says why")
    return Ground(Kind.SILENT, tuple(map(sentence, names)), why)
