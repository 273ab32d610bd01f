"""Target files: valid and invalid ones, and a service with another form of messages."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.campaign import at_length
from tests.mutants.changes import all_of, decision
from tests.mutants.messages import Answer, Request, answer
from tests.mutants.middleware import replies
from tests.mutants.mutant import FEW
from tests.mutants.rows import MUTANTS
from x402sim import World
from x402sim.protocol.routes import PAY
from x402sim.suite.command import (
    FOUND_SOMETHING,
    HELD,
    INTERRUPTED,
    NO_VERDICT,
)
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service.engine import all_checks, folder
from x402sim.suite.service.local import judge
from x402sim.suite.service.subject import find_target
from x402sim.suite.service.target import AgentsEndpoint, Target, at, load

SHIPPED = {file.stem: file for file in (folder("service") / "targets").glob("*.toml")}

# --- the files -----------------------------------------------------------------------------


def test_the_shipped_targets_have_the_names_of_their_files() -> None:
    assert sorted(SHIPPED) == ["cronos-paywall", "spec", "x402sim"]
    assert {load(file).name for file in SHIPPED.values()} == set(SHIPPED)


def documented(first: str) -> dict[str, str]:
    """Return the rows of a table of conformance/service/README.md: first cell -> second cell."""
    rows = (
        (folder("service") / "README.md")
        .read_text("utf-8")
        .split(f"| {first} |")[1]
        .split("\n\n")[0]
    )
    cells = [row.strip("|").split(" | ") for row in rows.splitlines()[2:]]
    return {each[0].strip().strip("`"): each[1].strip() for each in cells}


def test_every_key_is_documented_with_its_default() -> None:
    wanted: dict[str, Any] = {}
    for part in msgspec.structs.fields(Target):
        value = getattr(Target(), part.name)
        if isinstance(value, msgspec.Struct):
            keys = msgspec.structs.asdict(value)
            wanted |= {f"{part.name}.{key}": default for key, default in keys.items()}
        else:
            wanted[part.name] = value
    told = documented("key")
    assert list(told) == list(wanted)
    for key, default in wanted.items():
        if not isinstance(default, dict | list):
            assert told[key] == f"`{json.dumps(default)}`", key


def test_every_outcome_and_exit_code_is_documented() -> None:
    assert list(documented("outcome")) == [str(outcome) for outcome in Outcome]
    codes = (HELD, FOUND_SOMETHING, NO_VERDICT, INTERRUPTED)
    assert list(documented("exit code")) == [str(code) for code in codes]


def test_the_default_file_has_every_key() -> None:
    assert load(SHIPPED["spec"]) == Target()
    told = SHIPPED["spec"].read_text("utf-8")
    for part in msgspec.structs.fields(Target):
        if not isinstance(getattr(Target(), part.name), msgspec.Struct):
            continue
        section = told.split(f"[{part.name}]")[1]
        for key in msgspec.structs.fields(getattr(Target(), part.name)):
            is_there = f"{key.name} =" in section or f"[{part.name}.{key.name}]" in section
            assert is_there, f"{part.name}.{key.name}"


def test_an_empty_file_is_the_default_with_the_files_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("")
    assert load(file) == replace(Target(), name="mine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"pth = 1", "pth is no key of a target file"),
        (b"[protected]\npth = '/x'", "protected.pth is no key of a target file"),
        (b"[protected]\namount_base = '1'",
         "protected.amount_base: expected a whole number, got a text"),
        (b"[pay]\nspelling = 'base32'", "pay.spelling: invalid enum value 'base32'"),
        (b"[pay]\npath = ''\n[protected]\npath = '/weather'\nmethod = 'GET'\nbodies = [{}]",
         "pay.path is empty, so it describes a server of the x402 standard: its judge is x402sim "
         "conformance server /weather --start COMMAND, or, for one that runs already, with"),
        (b"pay = 3", "pay: expected a table, got a whole number"),
        (b"[protected.fields]\npair = 'text'", "protected.fields: "),
        (b"[statuses]\n'Invalid signature' = 400", "statuses: "),
        (b"[sessions]\nexists = 'no'", "sessions.exists: expected true or false, got a text"),
        (b"name = \n", "Invalid value (at line 1"),
        (b"name = 'a'\nname = 'b'\n", "Cannot overwrite a value (at line 2"),
        (b"name = '\xff'", "'utf-8' codec"),
        (b"[statuses]\n'Invalid signatur' = [400]",
         "statuses: unknown error text 'Invalid signatur'; did you mean 'Invalid signature'?"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_and_the_key(tmp_path: Path, text: bytes, said: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_bytes(text)
    with pytest.raises(ValueError) as raised:
        find_target(str(file))
    assert str(raised.value).startswith(f"{file}: {said}")


def test_places_are_json_pointers() -> None:
    body = {"accepts": [{"extra": {"paymentId": "pay_1", "a/b": 1, "~": 2}}], "": 3}
    found = {
        "/accepts/0/extra/paymentId": "pay_1",
        "/accepts/0/extra/a~1b": 1,
        "/accepts/0/extra/~0": 2,
        "/": 3,
        "": None,
        "/accepts/1": None,
        "/accepts/x": None,
        "/accepts/0/extra/paymentId/x": None,
    }
    assert {place: at(body, place) for place in found} == found


# --- the public paywall -----------------------------------------------------------------------


def spoken(request: Request, it: Answer) -> Answer:
    """Return an answer as the public Cronos paywall would give it (cronos-labs/x402-examples)."""
    body: Any = it.json
    if "paymentRequirements" in body:
        more = {"mimeType": "application/json", "extra": {"paymentId": body["paymentId"]}}
        accepts = [{**body["paymentRequirements"], "outputSchema": {}, **more}]
        return answer(402, {"x402Version": 1, "error": "payment_required", "accepts": accepts})
    if it.status == 200:
        paid = {"txHash": body["txHash"]} if request.path == PAY else {"response": body}
        return answer(200, {"ok": True, **paid})
    status = 502 if it.status >= 500 else 400
    return answer(status, {"ok": False, "error": it.error, "details": {}})


def judged(
    *mutants: str, target: Target | None = None, sections: str = "", ids: Collection[str] = ()
) -> dict[str, Result]:
    """Check our own service in the paywall's words, with these defects, and with priced agents."""
    shape = target or load(SHIPPED["cronos-paywall"])
    protected = replace(Target().protected, content="/response/quote")
    priced, said = decision(agents_free=False), replies("/api/", spoken)
    defects = [change for name in mutants for change in MUTANTS[name].changes]
    world = all_of(priced, *defects, said)(World(seed=1))
    checks = [c for c in all_checks() if not sections or c.section[0] in sections]
    checks = [c for c in checks if not ids or c.id in ids]
    results = judge(world, target=replace(shape, protected=protected), checks=checks)
    return {each.id: each for each in results}


@pytest.mark.thorough
def test_a_paywall_that_keeps_the_specification_passes() -> None:
    results = judged()
    odd = [r for r in results.values() if r.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)]
    assert odd == []
    passed = [r for r in results.values() if r.outcome is Outcome.PASSED]
    assert len(passed) > 30  # what needs sessions, agents or documents is skipped


DEFECTS = (
    "one-id-settled-side-by-side", "nonce-in-the-facilitator's-words", "requirements-are-believed",
    "any-network", "resource-is-believed", "invented-ids-settle", "paid-id-is-paid-again",
    "balance-in-the-chain's-words", "lost-answer-is-a-success",
)  # fmt: skip
"""Defects of the public paywall."""


def failed(results: dict[str, Result]) -> set[str]:
    return {each.id for each in results.values() if each.outcome is Outcome.FAILED}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_the_paywall_is_detected(name: str) -> None:
    its_own = MUTANTS[name].check_ids
    assert failed(judged(name, ids=its_own)) == its_own, MUTANTS[name].does


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEFECTS[: at_length(2, len(DEFECTS))])
def test_a_defect_of_the_paywall_is_seen_by_few_others(name: str) -> None:
    assert len(failed(judged(name)) - MUTANTS[name].check_ids) <= FEW


@pytest.mark.parametrize(
    ("defects", "outcome"),
    [((), "passed"), (("cache-forgets-the-resource", "records-forget-the-resource"), "failed")],
)
def test_an_entitlement_for_any_route_is_detected_if_there_are_two(
    defects: tuple[str, ...], outcome: str
) -> None:
    target = replace(load(SHIPPED["cronos-paywall"]), agents=AgentsEndpoint())
    results = judged(*defects, target=target, sections="5")
    assert results["spec/5/resource-binding"].outcome == outcome
