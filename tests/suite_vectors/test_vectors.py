"""The files agree with the makers, with eth-account and with the schemas."""

import json
import re

import msgspec
import pytest
from jsonschema import Draft202012Validator

from tests.house import blocks
from tests.interop.table import THOROUGH
from tests.running import ROOT
from tests.suite_vectors import page
from tests.suite_vectors.adapters import with_eth_account
from tests.suite_vectors.confirm import ADAPTERS, OURS, confirmed
from tests.suite_vectors.files import FOLDER, SCHEMAS, made, vectors_schema
from x402sim.spec.clauses import LEVELS
from x402sim.spec.ground import GroundType
from x402sim.suite.vectors.subject import all_cases
from x402sim.suite.vectors.vector import FAMILIES, Answer, File, Vector, agrees, files

EVERY = [(file, vector) for file in files() for vector in file.vectors]
RENEW = "python -m tests.renew --only vectors"
MOST_BYTES, LEAST, MOST_LINES = 1_600_000, 400, 150
OF_EIP_712 = ("domain", "struct", "digest", "sign", "recover")


def bare(vector: Vector) -> Vector:
    """Return a vector without what implementations have answered."""
    return msgspec.structs.replace(vector, confirmed=(), answers={})


def test_the_files_are_what_the_makers_make() -> None:
    for family, file in made().items():
        kept = next(each for each in files() if each.family == family)
        assert kept.sentences == file.sentences, RENEW
        assert [bare(each) for each in kept.vectors] == [*file.vectors], RENEW


def test_each_file_is_of_its_schema_and_all_are_small() -> None:
    schema = Draft202012Validator(vectors_schema())
    texts = {family: (FOLDER / f"{family}.json").read_text("utf-8") for family in FAMILIES}
    for file, text in zip(files(), texts.values(), strict=True):
        schema.validate(json.loads(text))
        rows = [line for line in text.splitlines() if line.startswith('  {"id"')]
        assert len(rows) == len(file.vectors), "one vector a line"
    for name, make in SCHEMAS.items():
        found = json.loads(json.dumps(make()))
        Draft202012Validator.check_schema(found)
        assert json.loads((FOLDER / name).read_text("utf-8")) == found, RENEW
    assert (FOLDER / "LICENSE").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")
    assert sum(each.stat().st_size for each in FOLDER.iterdir()) < MOST_BYTES
    assert len(EVERY) >= LEAST


def test_each_vector_has_an_id_a_level_and_its_sentences() -> None:
    assert len({case.id for case in all_cases()}) == len(all_cases())
    for file, vector in EVERY:
        assert re.fullmatch(rf"(vectors|kit|silent)/{file.family}/[a-z0-9-]+", vector.id)
        assert vector.level == LEVELS[vector.ground.kind], vector.id
        assert (vector.expect is None) is (vector.ground.kind is GroundType.SILENT), vector.id
        assert (OURS in vector.confirmed) is (vector.expect is not None), vector.id
        assert vector.ground.sentences
        for name in vector.ground.sentences:
            assert re.search(r"\(.+(\.md|\.sol|20\d\d-\d\d-\d\d)", file.sentences[name].source), (
                name
            )
        assert {*vector.confirmed, *vector.answers} <= file.implementations.keys()


def test_eth_account_computes_each_hash_each_signature_and_each_signer() -> None:
    """`expect` of the file against another library, in this process."""
    found = [vector for _, vector in EVERY if vector.op in OF_EIP_712 and vector.expect is not None]
    assert len(found) > 120
    for vector in found:
        try:
            answer = Answer(0, result=with_eth_account.OPERATIONS[vector.op](vector.input))
        except Exception:  # noqa: BLE001 - whatever the library raises, it refuses
            assert vector.expect == {"error": "invalid"}, vector.id
        else:
            assert agrees(vector, answer), vector.id
        assert "viem" in vector.confirmed, vector.id
        assert "eth-account" in vector.confirmed, vector.id


def test_most_are_confirmed_by_others() -> None:
    alone = [
        vector
        for _, vector in EVERY
        if vector.expect is not None and vector.confirmed == (OURS,)
        if vector.input.get("version") != "spec"  # nobody else has it
    ]
    assert {vector.op for vector in alone} <= {"amount", "verify"}
    assert len(alone) < 0.05 * len(EVERY)


@THOROUGH
def test_who_confirms_a_vector_does_so_again() -> None:
    """Also recomputes each vector of EIP-712 by viem."""
    kept = [vector for _, vector in EVERY]
    assert confirmed([bare(each) for each in kept]) == kept, RENEW


def test_the_tables_of_the_guide_are_current() -> None:
    guide = page.GUIDE.read_text("utf-8")
    every: tuple[File, ...] = files()
    assert page.operations() in guide, RENEW
    assert page.news(every) in guide, RENEW


def test_an_adapter_is_short_and_the_guide_shows_the_lines() -> None:
    for file in ADAPTERS.iterdir():
        if file.is_file():
            assert len(file.read_text("utf-8").splitlines()) < MOST_LINES, file.name
    schema = Draft202012Validator(SCHEMAS["adapter.schema.json"]())
    lines = [line for text in blocks(page.GUIDE.read_text("utf-8"), "json") for line in text.splitlines()]  # fmt: skip
    assert len(lines) == 4
    for line in lines:
        schema.validate(json.loads(line))
    with pytest.raises(Exception, match="not valid under any"):
        schema.validate({"id": 1, "op": "sign", "input": {}})
