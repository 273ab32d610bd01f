"""Keys, vectors, and names of sentences for the makers of all families."""

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from tests.running import ROOT
from x402sim.protocol.crypto import PrivateKey
from x402sim.rng import Rng
from x402sim.spec.clauses import LEVELS
from x402sim.spec.ground import Ground, GroundType, Sentence
from x402sim.suite.vectors.vector import INVALID, Grounds, Text, Vector

_DRAWN = Rng(0)
REFUSES: dict[str, Any] = {"error": INVALID}
_DOCUMENTS = {GroundType.OURS: "kit", GroundType.SILENT: "silent"}


def secret(name: str) -> bytes:
    return _DRAWN.secret(f"vectors: {name}")


def key(name: str) -> PrivateKey:
    return PrivateKey(secret(name))


def _names() -> dict[Sentence, str]:
    tables = tomllib.loads((ROOT / "x402sim/suite/texts.toml").read_text("utf-8"))
    return {
        Sentence(table["source"].format(found[0]), found[1]): name
        for table in tables.values()
        for name, found in table.items()
        if name != "source"
    }


NAMES = _names()
SPEC = "x402sim's specification, {} (x402sim/spec/sentences.md)"
"""How the files cite a sentence of the specification that the service keeps."""


def name_of(sentence: Sentence) -> str:
    if sentence in NAMES:
        return NAMES[sentence]
    words = "_".join(filter(str.isalnum, sentence.text.split()[:3])).upper()
    return f"SPEC_{sentence.section.replace('.', '_')}_{words}"


def text_of(sentence: Sentence) -> Text:
    """Return a sentence as the files have it."""
    is_public = sentence in NAMES
    source = sentence.section if is_public else SPEC.format(sentence.section)
    return Text(source, sentence.text)


class Maker:
    """Collects the vectors of a family, and the sentences behind the vectors."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.vectors: dict[str, Vector] = {}
        self.sentences: dict[str, Text] = {}
        self.slugs = set[str]()
        self.asked = dict[str, str]()

    def add(
        self,
        slug: str,
        about: str,
        op: str,
        given: Mapping[str, Any],
        expect: Mapping[str, Any] | None,
        ground: Ground,
        word: str = "",
        word_sentence: Sentence | None = None,
    ) -> None:
        """Add a vector; a vector without `expect` has a silent ground, and no other vector has."""
        assert (expect is None) is (ground.kind is GroundType.SILENT), slug
        more = () if word_sentence is None else (word_sentence,)
        for each in (*ground.sentences, *more):
            self.sentences[name_of(each)] = text_of(each)
        document = _DOCUMENTS.get(ground.kind, "vectors")
        its_id = f"{document}/{self.family}/{slug}"
        assert slug not in self.slugs, its_id
        self.slugs.add(slug)
        asked = json.dumps([op, given], sort_keys=True)
        assert asked not in self.asked, f"{its_id} asks what {self.asked[asked]} asks"
        self.asked[asked] = its_id
        self.vectors[its_id] = Vector(
            id=its_id,
            op=op,
            about=about,
            input=dict(given),
            expect=None if expect is None else dict(expect),
            word=word,
            word_sentence="".join(map(name_of, more)),
            level=LEVELS[ground.kind],
            ground=Grounds(ground.kind, tuple(map(name_of, ground.sentences)), ground.why),
        )


def slug_of(text: str) -> str:
    """Return words as a part of an id."""
    found = "".join(char.lower() if char.isascii() and char.isalnum() else "-" for char in text)
    return "-".join(filter(None, found.split("-")))
