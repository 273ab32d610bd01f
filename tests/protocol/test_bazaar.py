"""Why no index lists a resource: each fault of a declaration is found, and nothing in a right one."""

import json
from typing import Any

import pytest

from tests.house import ROOT, blocks
from x402sim.protocol.bazaar import Fault, declaration, difference, faults_of_402

GET = declaration("GET", {"sky": "blue"})
POST = declaration("POST", {"found": 1}, {"query": "x"})
RESOURCE = {"url": "https://shop.test/weather"}
INFO, SCHEMA = GET["bazaar"]["info"], GET["bazaar"]["schema"]
TOOL = {"type": "mcp", "tool": "forecast", "inputSchema": {"type": "object"}}
DEEP: Any = 1
for _ in range(5000):
    DEEP = {"a": DEEP}


def said(bazaar: Any = None, version: int = 2, *offers: Any, **more: Any) -> dict[str, Any]:
    """A 402 with this value of `extensions.bazaar`."""
    extensions = {} if bazaar is None else {"extensions": {"bazaar": bazaar}}
    return {
        "x402Version": version,
        "resource": RESOURCE,
        "accepts": [*offers],
        **extensions,
        **more,
    }


def of(input_: Any = INFO["input"], schema: Any = SCHEMA) -> dict[str, Any]:
    return {"info": {"input": input_}, "schema": schema}


def found(fields: Any) -> list[Fault]:
    return list(faults_of_402(fields, fields["x402Version"]))


LOOSE = {"properties": {"input": {}}}
AT = "extensions.bazaar"


@pytest.mark.parametrize(
    ("fields", "about", "seen"),
    [
        (said(GET["bazaar"], 1), AT, "in version 1"),
        (said(None, 1, {"extensions": GET}), AT, "in version 1"),
        (said(None, 2, {}, {"outputSchema": {}}), "accepts[1]", "outputSchema"),
        (said(None, 2, {"extensions": GET}), "accepts[0]", "extensions"),
        (said(GET["bazaar"], 2, {"resource": "x"}), "accepts[0]", "resource"),
        (said(7), AT, "without info"),
        (said({"discoverable": True, "inputSchema": {}}), AT, "but discoverable, inputSchema"),
        (said(GET), AT, "but bazaar"),
        (said(of({})), f"{AT}.info.input.type", "nothing"),
        (said(of([])), f"{AT}.info.input.type", "nothing"),
        (said(of({"type": "http"})), f"{AT}.info.input.method", "nothing"),
        (said(of({"type": "http", "method": "get"}, LOOSE)), f"{AT}.info.input.method", '"get"'),
        (said(of({"type": "http", "method": "POST"})), f"{AT}.info.input.bodyType", "nothing"),
        (
            said(of({"type": "http", "method": "PUT", "bodyType": "text"})),
            f"{AT}.info.input.body",
            "nothing",
        ),
        (said(of({"type": "mcp", "inputSchema": {}})), f"{AT}.info.input.tool", "nothing"),
        (said(of(TOOL | {"inputSchema": 1})), f"{AT}.info.input.inputSchema", "1"),
        (said({"info": INFO}), f"{AT}.schema", "nothing"),
        (said(of(schema={"properties": {"city": {}}})), f"{AT}.schema", "of something else"),
        (
            said(of(INFO["input"] | {"method": "HEAD"})),
            f"{AT}.info",
            'info.input.method is "HEAD", none of ["GET"]',
        ),
        (said(GET["bazaar"], resource={}), "resource.url", "nothing"),
        (said(GET["bazaar"], resource={"url": "/weather"}), "resource.url", '"/weather"'),
        (said(GET["bazaar"], resource={"url": "http://["}), "resource.url", '"http://["'),
    ],
)
def test_each_fault_is_found_alone(fields: Any, about: str, seen: str) -> None:
    fault, *others = found(fields)
    assert (fault.about, others) == (about, [])
    assert seen in fault.seen
    assert fault.wanted
    assert fault.do.endswith(".")


def test_a_right_declaration_has_no_fault_nor_has_none() -> None:
    tools = [of(TOOL, LOOSE), of({**TOOL, "tool": None, "toolName": "x"}, LOOSE)]
    for bazaar in (None, GET["bazaar"], POST["bazaar"], *tools):
        assert found(said(bazaar, 2, {"scheme": "exact"})) == []
    old = {"outputSchema": {"input": {"type": "http"}}, "resource": RESOURCE["url"]}
    assert found(said(None, 1, old)) == []


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ({"type": "integer"}, True, "info is no integer"),
        ({"type": "boolean"}, True, ""),
        ({"type": ["null", "string"]}, 1, ""),
        ({"const": {"a": 1}}, {"a": 1}, ""),
        ({"enum": [1, []]}, {}, "info is {}, none of [1,[]]"),
        ({"required": ["a", [], 7]}, {}, "info has no a"),
        ({"additionalProperties": False}, {"b": 1}, "info has b, which its schema does not know"),
        ({"properties": {"a": {"properties": {"b": {"type": "string"}}}}}, {"a": {"b": 1}},
         "info.a.b is no string"),
        ({"const": DEEP}, DEEP, ""),
        ({"pattern": "(a+)+$"}, "a" * 40 + "!", ""),
    ],
)  # fmt: skip
def test_a_value_is_compared_with_its_schema(schema: Any, value: Any, wrong: str) -> None:
    assert difference(schema, value) == wrong


def test_the_whole_declaration_of_the_guide_is_right() -> None:
    page = (ROOT / "x402sim/guide/bazaar.md").read_text("utf-8")
    (whole,) = [json.loads(text) for text in blocks(page, "json")]
    said = {"extensions": whole, "resource": {"url": "https://shop.example/weather"}}
    assert list(faults_of_402(said, 2)) == []
