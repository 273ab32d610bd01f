"""Writes the files of vectors, one vector a line, with what implementations answer."""

from collections.abc import Callable

import msgspec

from tests.running import ROOT
from tests.suite_vectors.amounts import amounts, offers
from tests.suite_vectors.confirm import confirmed, versions
from tests.suite_vectors.facilitators import facilitator
from tests.suite_vectors.making import Maker
from tests.suite_vectors.messages import messages
from tests.suite_vectors.typed_data import signatures, typed_data
from x402sim.suite.vectors.vector import FAMILIES, File

FOLDER = ROOT / "conformance" / "vectors"
MAKERS: dict[str, Callable[[], Maker]] = {
    "headers": messages,
    "offers": offers,
    "amounts": amounts,
    "typed-data": typed_data,
    "signatures": signatures,
    "facilitator": facilitator,
}


def text(file: File) -> str:
    """Return a file as JSON, one vector a line."""
    head = msgspec.to_builtins(file)
    vectors = head.pop("vectors")
    lines = [f" {msgspec.json.encode(name).decode()}: {msgspec.json.encode(value).decode()}," for name, value in head.items()]  # fmt: skip
    rows = ",\n".join("  " + msgspec.json.encode(each).decode() for each in vectors)
    return "\n".join(["{", *lines, ' "vectors": [', rows, " ]", "}"]) + "\n"


def made() -> dict[str, File]:
    """Return the files as the makers make them, without confirmations."""
    found = {}
    for family, about in FAMILIES.items():
        if family in MAKERS:
            it = MAKERS[family]()
            found[family] = File(family=family, about=about, sentences=dict(sorted(it.sentences.items())), vectors=(*it.vectors.values(),))  # fmt: skip
    return found


def write() -> None:
    """Write every file, after the implementations have answered every vector."""
    files = made()
    every = confirmed([vector for file in files.values() for vector in file.vectors])
    by_id = {vector.id: vector for vector in every}
    for family, file in files.items():
        vectors = tuple(by_id[each.id] for each in file.vectors)
        named = {name for each in vectors for name in (*each.confirmed, *each.answers)}
        tried = {name: text for name, text in versions().items() if name in named}
        whole = msgspec.structs.replace(file, implementations=tried, vectors=vectors)
        (FOLDER / f"{family}.json").write_text(text(whole), encoding="utf-8")
