"""The documentation: the index and its pages, the OpenAPI document, the interactive page."""

import json
import re
import runpy
import sys
from importlib.resources import files
from urllib.parse import urlsplit

import msgspec
import pytest
from eth_account import Account
from starlette.requests import Request
from starlette.routing import Route

from tests.rig import ORDER, ServiceRig, scene
from tests.service.standard import set_up
from x402sim.http import page as text_page
from x402sim.protocol import messages
from x402sim.protocol.crypto import checksum
from x402sim.protocol.header import read_header
from x402sim.protocol.messages import RequiredPayment, SettlementRequest
from x402sim.protocol.networks import MAINNET, TESTNET, Network
from x402sim.protocol.offers import OfferBody
from x402sim.protocol.refusals import Refusal, status_of
from x402sim.protocol.rules import VERIFICATION, Verification, first_broken
from x402sim.service.app import service_app
from x402sim.service.docs import pages
from x402sim.service.docs.openapi import openapi
from x402sim.service.docs.pages import PAGES, llms_txt
from x402sim.spec.decisions import Decisions, alternatives, decisions
from x402sim.text.templates import render

OURS = Decisions()
BOTH = pytest.mark.parametrize("choices", [OURS, alternatives()], ids=["ours", "others"])
OWN = Network("my-net", 4711, b"\xab" * 20, 'The "Dollar"', "MYD", "3", 18)
"""A network of the user's, whose token has 18 decimals and a name that needs quoting."""


def page(name: str, choices: Decisions) -> str | None:
    return pages.page(name, choices, TESTNET, "http://service.test")


def document(choices: Decisions = OURS, network: Network = TESTNET) -> dict:
    text = msgspec.json.encode(openapi(choices, 10_000, network))
    return json.loads(text)


def operations(api: dict):
    for path, item in api["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def walk(node):
    yield node
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from walk(child)


def example_402(api: dict) -> dict:
    responses = api["paths"]["/api/perp/quote"]["post"]["responses"]
    return responses["402"]["content"]["application/json"]["example"]


# --- the index and its pages ---------------------------------------------------------


@pytest.mark.clause("4.5/llms-txt")
def test_the_index_lists_every_documentation_page_and_each_exists():
    text = llms_txt("http://service.test/")
    assert text.startswith("# ")
    assert re.search(r"^> \S", text, re.MULTILINE)
    links = re.findall(r"^- \[[^\]]+\]\((\S+)\): \S", text, re.MULTILINE)
    assert all(link.startswith("http://service.test/") for link in links)
    paths = [urlsplit(link).path for link in links]
    assert set(paths) == {
        "/docs", "/openapi.json", "/docs/guide/index.md", *(f"/docs/{name}.md" for name in PAGES)
    }  # fmt: skip
    for path in paths:
        if path.endswith(".md"):
            assert page(path.removeprefix("/docs/"), Decisions())


@BOTH
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_its_links_and_tables_are(name, choices):
    text = page(name, choices)
    assert text is not None
    assert text.startswith("# ")
    assert page(f"{name}.md", choices) == text
    assert text.count("```") % 2 == 0
    assert not re.search(r"{{|{%|&\w+;", text), "not filled in, or escaped as if it were HTML"
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert page(target, choices), target
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_there_is_no_other_page():
    for name in ("", "nothing", "../pages", "payment-flow.md.md", "guide/../pages.py", "guide/x"):
        assert page(name, OURS) is None


@BOTH
def test_the_decisions_page_has_every_decision_and_says_which_way_it_went(choices):
    rows = {
        row.split("`")[1]: row for row in page("decisions", choices).split("\n") if "| `" in row
    }
    assert list(rows) == [decision.id for decision in decisions()]
    for decision in decisions():
        switched = decision.field is not None and choices != Decisions()
        assert rows[decision.id].endswith(f"| the {'alternative' if switched else 'choice'} |")


NETWORKS = pytest.mark.parametrize("network", [TESTNET, MAINNET, OWN], ids=lambda it: it.name)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an open file
@pytest.mark.parametrize("network", [TESTNET, OWN], ids=["testnet", "own"])
def test_the_script_of_the_payment_flow_signs_a_valid_payment(
    tmp_path, monkeypatch, capsys, network
):
    flow = pages.page("payment-flow", Decisions(), network, "http://service.test")
    script = flow.split("```python\n")[1].split("```")[0]
    assert f"a\ntoken with {network.decimals} decimals" in flow
    example = example_402(document(network=network))
    (tmp_path / "sign.py").write_text(script)
    (tmp_path / "402.json").write_text(json.dumps(example))
    payer = Account.create()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAYER_KEY", payer.key.hex())
    monkeypatch.setattr(sys, "argv", ["sign.py", "402.json"])
    runpy.run_path("sign.py", run_name="__main__")
    sent = messages.decode(capsys.readouterr().out.encode(), SettlementRequest)
    assert sent.payment_id == example["paymentId"]
    assert sent.payment_requirements.description is msgspec.UNSET
    payment = read_header(sent.payment_header)
    authorization = payment.authorization
    assert checksum(authorization.from_) == payer.address
    assert authorization.valid_before - authorization.valid_after == 360
    wanted = msgspec.convert(msgspec.to_builtins(sent.payment_requirements), RequiredPayment)
    assert first_broken(VERIFICATION, Verification(payment, wanted, network)) is None
    for lie in {"maxAmountRequired": str(10**18 + 1)}, {"asset": checksum(b"\xcd" * 20)}:
        greedy = {**example, "paymentRequirements": example["paymentRequirements"] | lie}
        (tmp_path / "402.json").write_text(json.dumps(greedy))
        with pytest.raises(SystemExit, match="asks for another token, or for more than MOST"):
            runpy.run_path("sign.py", run_name="__main__")


# --- the OpenAPI document ------------------------------------------------------------


@scene
async def test_the_openapi_document_has_every_route_of_the_service(rig):
    routes = {(route.path, method) for route in service_app(rig.service).routes
              if isinstance(route, Route) for method in route.methods - {"HEAD"}}  # fmt: skip
    named = {"/api/sessions/session_{rest}": "/api/sessions/{sessionId}",
             "/api/payments/{payment_id}": "/api/payments/{paymentId}", "/docs/{name:path}": "/docs/{page}"}  # fmt: skip
    documented = {(path, method.upper()) for path, method, _ in operations(document())}
    assert {(named.get(path, path), method) for path, method in routes} >= documented
    assert len(documented) == 12


@BOTH
def test_it_is_valid_every_reference_resolves_and_every_schema_is_used(choices):
    api = document(choices)
    refs = {node["$ref"] for node in walk(api) if isinstance(node, dict) and "$ref" in node}
    assert {f"#/components/schemas/{name}" for name in api["components"]["schemas"]} <= refs
    from openapi_spec_validator import validate

    validate(api)


@BOTH
def test_the_statuses_are_those_decided(choices):
    api = document(choices)
    answers = api["paths"]["/api/pay"]["post"]["responses"]
    for refusal in Refusal:
        media = answers[str(status_of(refusal, choices))]["content"]["application/json"]
        assert refusal.value in [each["value"]["error"] for each in media["examples"].values()]
    assert set(answers) == {"200", "400", "413", "503"} | {
        str(status_of(r, choices)) for r in Refusal
    }
    quote = api["paths"]["/api/perp/quote"]["post"]["responses"]
    assert {"402", str(choices.short_session_status)} <= set(quote)
    assert "storage-unavailable" in quote["503"]["content"]["application/json"]["examples"]
    created = api["paths"]["/api/sessions/create"]["post"]["responses"]
    assert str(choices.session_created_status) in created
    assert ("402" in api["paths"]["/api/agents"]["get"]["responses"]) is not choices.agents_free


def check_example(api: dict, schema: dict, example) -> int:
    """Decode each part of an example that has a message; return how many there were."""
    if "$ref" in schema:
        kind = getattr(messages, schema["$ref"].rpartition("/")[2])
        kind = OfferBody if "accepts" in example else kind
        decoded = messages.decode(json.dumps(example).encode(), kind)
        assert msgspec.to_builtins(decoded) == example, "nothing in it is unknown"
        return 1
    if schema.get("type") == "array":
        return sum(check_example(api, schema["items"], each) for each in example)
    parts = schema.get("properties", {})
    inner = {name: part for name, part in parts.items() if "$ref" in part or "items" in part}
    return sum(check_example(api, part, example[name]) for name, part in inner.items())


@BOTH
@NETWORKS
def test_every_example_is_a_message(choices, network):
    api = document(choices, network)
    checked = 0
    for node in walk(api["paths"]):
        if not (isinstance(node, dict) and "schema" in node):
            continue
        examples = [each["value"] for each in node.get("examples", {}).values()]
        if "example" in node:
            examples.append(node["example"])
        checked += sum(check_example(api, node["schema"], example) for example in examples)
    assert checked >= 20


# --- the interactive page ------------------------------------------------------------


def shipped(name: str) -> str:
    if name == "docs.html":
        return render("x402sim.service.docs", "docs.html", pages=PAGES)
    return files("x402sim.service.docs").joinpath("assets", name).read_text(encoding="utf-8")


def test_the_interactive_page_loads_nothing_from_elsewhere_and_links_every_page():
    for name in ("docs.html", "docs.css", "docs.js"):
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", shipped(name)), name
    html = shipped("docs.html")
    loads = set(re.findall(r'\b(?:src|href)="([^"]*)"', html))
    assert {"docs.js", "docs.css", "openapi.json", "llms.txt"} <= loads
    assert {f"docs/{name}.md" for name in PAGES} <= loads
    inline = r"<style|<script(?![^>]*\bsrc=)|<[^>]*\s(on\w+|style)="
    assert not re.search(inline, html), "it works under a strict content security policy"


# --- pages for browsers --------------------------------------------------------------


def test_html_in_a_text_is_text_and_others_get_the_text_itself():
    request = Request({"type": "http", "headers": [(b"accept", b"text/html")], "path": "/"})
    hostile = "# <b onclick=x>a</b>\n\n<script>1</script> [x](javascript:alert(1))\n"
    shown = bytes(text_page.answer(request, hostile, {}).body).decode()
    assert "<script" not in shown
    assert "<b " not in shown
    assert 'href="javascript' not in shown
    plain = text_page.answer(Request({"type": "http", "headers": []}), hostile, {})
    assert (bytes(plain.body).decode(), plain.media_type) == (hostile, "text/markdown")


# --- for indexes ---------------------------------------------------------------------


@pytest.mark.parametrize("agents_free", [True, False])
@scene
async def test_indexes_of_x402_find_what_is_sold(rig: ServiceRig, agents_free: bool) -> None:
    set_up(rig, decide={"agents_free": agents_free})
    told = (await rig.http.get("/.well-known/x402")).json()
    assert told["version"] == 1
    assert len(told["resources"]) == (2 if agents_free else 3)
    assert [each["resource"] for each in told["accepts"]] == told["resources"]
    for url, offered in zip(told["resources"], told["accepts"], strict=True):
        is_quote = url.endswith("/quote")
        answer = await (rig.http.post(url, json=ORDER) if is_quote else rig.http.get(url))
        assert answer.status_code == 402, url
        (asked,) = answer.json()["accepts"]
        del asked["extra"]["paymentId"]
        assert asked == offered
