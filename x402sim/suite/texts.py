"""The sentences of public texts that demands are grounded in, and the grounds made from sentences.

`texts.toml` has the sentences; each is an attribute of this module, by its name in the file. The
core of x402 (versions 1 and 2), its schemes, transports and extensions are cited at a commit of
x402-foundation/x402; version 1 at a commit of coinbase/x402.
"""

import tomllib
from importlib.resources import files

from x402sim.spec.ground import Ground, GroundType, Sentence

_TEXTS = tomllib.loads((files(__package__) / "texts.toml").read_text("utf-8"))
SENTENCES = {
    name: Sentence(text["source"].format(found[0]), found[1])
    for text in _TEXTS.values()
    for name, found in text.items()
    if name not in ("source", "url")
}
_URLS: dict[str, str] = {
    text["source"].format(found[0]): text["url"].format(found[0])
    for text in _TEXTS.values()
    for name, found in text.items()
    if name not in ("source", "url")
}


IN_V1: dict[Sentence, Sentence | None] = {
    SENTENCES[name.removesuffix("_V1")]: own
    for name, own in SENTENCES.items()
    if name.endswith("_V1") and name.removesuffix("_V1") in SENTENCES
}
"""For sentences of version 2: the sentence of version 1 with the same content, X_V1 for X."""


def __getattr__(name: str) -> Sentence:
    """Return a sentence by its name."""
    try:
        return SENTENCES[name]
    except KeyError:
        raise AttributeError(f"texts.toml has no sentence {name}") from None


def url_of(sentence: Sentence) -> str:
    """Return the address of the file with a sentence, at the revision in which it was read."""
    return _URLS.get(sentence.section, "")


def explicit(*sentences: Sentence) -> Ground:
    """Return the ground of a demand that the sentences state."""
    return Ground(GroundType.EXPLICIT, sentences)


def derived(*sentences: Sentence, so: str) -> Ground:
    """Return the ground of a demand that follows from the sentences by the step `so`."""
    return Ground(GroundType.DERIVED, sentences, so)


def ours(*sentences: Sentence, because: str) -> Ground:
    """Return the ground of a demand of the kit: the harm, and where the harm happened."""
    return Ground(GroundType.OURS, sentences, because)


def silent(*sentences: Sentence, why: str) -> Ground:
    """Return the ground of an observation."""
    return Ground(GroundType.SILENT, sentences, why)


def valid_settles(*sentences: Sentence) -> Ground:
    """Return the ground of "a payment that verify calls valid settles", from sentences and
    IS_VALID."""
    so = "whoever serves on isValid is paid only if settle makes this call, with what was signed"
    return derived(SENTENCES["IS_VALID"], *sentences, so=so)
