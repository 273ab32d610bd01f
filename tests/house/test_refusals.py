"""One row per error: each text stands once, and is documented."""

import ast
from pathlib import Path

import pytest

from tests.house import PACKAGE
from tests.house.reference import GUIDE, PAGES
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.refusals import Finality, Refusal, RequestError, status_of
from x402sim.service.docs import pages
from x402sim.service.docs.openapi import openapi
from x402sim.spec.decisions import Decisions, alternatives

TABLE = PACKAGE / "protocol" / "refusals.py"
ERRORS = [*Refusal, *RequestError]
OTHERS_WORDS = {
    PACKAGE / "spec", PACKAGE / "protocol" / "cronos.py",
    *(GUIDE / f"{name}.md" for name in (*PAGES, "server", "scenarios"))
}  # fmt: skip
"""Quotes of the specification and of other public texts, the errors of a facilitator that are worded
like ours, and pages of the guide that are written from code, or compared with a log or a scenario."""
BOTH = pytest.mark.parametrize("choices", [Decisions(), alternatives()], ids=["ours", "others"])


def strings(text: str) -> list[str]:
    """The string literals of a module, without docstrings and the notes below definitions."""
    nodes = list(ast.walk(ast.parse(text)))
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in prose]
    return [node.value for node in constants if isinstance(node.value, str)]


def is_others(file: Path) -> bool:
    return any(file == other or other in file.parents for other in OTHERS_WORDS)


def test_an_error_text_stands_in_one_file_and_is_used_once():
    words = [set(error.text.split()) for error in ERRORS]  # of a text that goes over two lines, too
    code = {}
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if not is_others(file) and any(all(word in text for word in each) for each in words):
            code[file] = "\n".join(strings(text))
    pages = [*PACKAGE.rglob("*.md"), *PACKAGE.rglob("*.txt"), *PACKAGE.rglob("*.html")]
    said = code | {file: file.read_text() for file in pages if not is_others(file)}
    for error in ERRORS:
        assert [file for file, text in said.items() if error.text in text] == [TABLE], error
    assert len({error.text for error in ERRORS}) == len(ERRORS)


@BOTH
def test_every_error_is_on_the_errors_page(choices):
    text = pages.page("errors", choices, TESTNET, "http://service.test")
    for error in ERRORS:
        never = error is RequestError.SESSION_CANNOT_PAY and choices.short_session_status == 402
        row = f"| `{error.text}` | {status_of(error, choices)} |"
        assert (row in text) is not never


@BOTH
def test_every_refusal_is_in_the_openapi_document(choices):
    api = openapi(choices, 1, TESTNET)
    answers = api["paths"]["/api/pay"]["post"]["responses"]
    for refusal in Refusal:
        answer = answers[str(status_of(refusal, choices))]
        assert f"`{refusal.text}` (7): {refusal.row.cause}" in answer["description"]
        examples = answer["content"]["application/json"]["examples"].values()
        bodies = {each["value"]["error"]: each["value"] for each in examples}
        assert bodies[refusal.text]["final"] is (refusal.row.final is Finality.FINAL)
