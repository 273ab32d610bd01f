"""Writes the files of vectors, one vector a line, with what implementations answer."""

import json
from collections.abc import Callable
from inspect import cleandoc
from typing import Any

import msgspec

from tests.running import ROOT
from tests.suite_vectors import page
from tests.suite_vectors.amounts import amounts, offers
from tests.suite_vectors.confirm import confirmed, versions
from tests.suite_vectors.facilitators import facilitator
from tests.suite_vectors.making import Maker
from tests.suite_vectors.messages import messages
from tests.suite_vectors.permit2 import permit2
from tests.suite_vectors.typed_data import signatures, typed_data
from x402sim.suite.vectors.vector import (
    CAPABILITIES,
    FAMILIES,
    OPERATIONS,
    Answer,
    File,
    Request,
)

FOLDER = ROOT / "conformance" / "vectors"
MAKERS: dict[str, Callable[[], Maker]] = {
    "headers": messages,
    "offers": offers,
    "amounts": amounts,
    "typed-data": typed_data,
    "signatures": signatures,
    "permit2": permit2,
    "facilitator": facilitator,
}


def text(file: File) -> str:
    """Return a file as JSON, one vector a line."""
    head = msgspec.to_builtins(file)
    vectors = head.pop("vectors")
    lines = [f" {msgspec.json.encode(name).decode()}: {msgspec.json.encode(value).decode()}," for name, value in head.items()]  # fmt: skip
    rows = ",\n".join("  " + msgspec.json.encode(each).decode() for each in vectors)
    return "\n".join(["{", *lines, ' "vectors": [', rows, " ]", "}"]) + "\n"


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def vectors_schema() -> dict[str, Any]:
    found = msgspec.json.schema(File)
    for each in found["$defs"].values():  # versions of msgspec indent docstrings differently
        each["description"] = cleandoc(each["description"])
    title = {"$schema": DRAFT, "title": "A file of vectors of x402", "license": "MIT"}
    found["$defs"]["Vector"]["properties"]["op"] = {"enum": [*OPERATIONS]}
    return title | found


def lines_schema() -> dict[str, Any]:
    by_op = [
        {
            "if": {"properties": {"op": {"const": name}}},
            "then": {"properties": {"input": {"required": each.takes.split()}}},
        }
        for name, each in OPERATIONS.items()
    ]
    (request, answer), defs = msgspec.json.schema_components(
        (Request, Answer), ref_template="#/$defs/{name}"
    )
    defs["Request"] |= {"allOf": by_op, "required": ["id", "op", "input"]}
    defs["Request"]["properties"]["op"] = {"enum": [CAPABILITIES, *OPERATIONS]}
    one = [{"required": ["result"], "not": {"required": ["error"]}}, {"required": ["error"], "not": {"required": ["result"]}}]  # fmt: skip
    defs["Answer"]["oneOf"] = one
    del defs["Answer"]["properties"]["result"]["anyOf"][-1]
    del defs["Answer"]["properties"]["error"]["anyOf"][-1]
    title = {"$schema": DRAFT, "title": "A line that an adapter reads or writes", "license": "MIT"}
    return {**title, "oneOf": [request, answer], "$defs": defs}


SCHEMAS = {"vectors.schema.json": vectors_schema, "adapter.schema.json": lines_schema}


def made() -> dict[str, File]:
    """Return the files as the makers make them, without confirmations."""
    found = {}
    for family, about in FAMILIES.items():
        if family in MAKERS:
            it = MAKERS[family]()
            found[family] = File(family=family, about=about, sentences=dict(sorted(it.sentences.items())), vectors=(*it.vectors.values(),))  # fmt: skip
    return found


def write() -> None:
    for name, schema in SCHEMAS.items():
        (FOLDER / name).write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")
    files = made()
    every = confirmed([vector for file in files.values() for vector in file.vectors])
    by_id = {vector.id: vector for vector in every}
    done = []
    for family, file in files.items():
        vectors = tuple(by_id[each.id] for each in file.vectors)
        named = {name for each in vectors for name in (*each.confirmed, *each.answers)}
        tried = {name: text for name, text in versions().items() if name in named}
        whole = msgspec.structs.replace(file, implementations=tried, vectors=vectors)
        (FOLDER / f"{family}.json").write_text(text(whole), encoding="utf-8")
        done.append(whole)
    page.write(done)
