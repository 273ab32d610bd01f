"""Writes the files of vectors, one vector a line, with what implementations answer."""

from collections.abc import Callable, Iterable

import msgspec

from tests.running import ROOT
from tests.suite_vectors.making import Maker
from tests.suite_vectors.typed_data import signatures, typed_data
from x402sim.suite.vectors.vector import FAMILIES, File, Vector

FOLDER = ROOT / "conformance" / "vectors"
MAKERS: dict[str, Callable[[], Maker]] = {"typed-data": typed_data, "signatures": signatures}


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


def write(confirm: Callable[[Iterable[Vector]], list[Vector]] = list) -> None:
    """Write every file."""
    for family, file in made().items():
        whole = msgspec.structs.replace(file, vectors=tuple(confirm(file.vectors)))
        (FOLDER / f"{family}.json").write_text(text(whole), encoding="utf-8")
