"""/_sim/openapi.json: it is valid, complete, and what a running server reads and answers."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx

from tests.serve.hosted import hosted
from x402sim import World
from x402sim.serving.control.app import ACTIONS, control_app, openapi
from x402sim.world.running_world import build

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

SENT: dict[str, dict[str, Any]] = {
    "/faucet": {"address": "0x" + "aa" * 20, "amount": "1.00"},
    "/wallet": {"owner": "0x" + "aa" * 20},
    "/clock/advance": {"seconds": 1},
    "/mining": {"automine": True},
    "/revert": {"snapshot": 1},
    "/balances": {"accounts": ["0x" + "aa" * 20]},
    "/send": {"from": "0x" + "aa" * 20, "to": "0x" + "bb" * 20},
    "/faults": {"victim": "facilitator", "does": "lose answer", "path": "/settle", "times": 2},
    "/clock/skew": {"actor": "chain", "seconds": 0},
    "/explorer/lag": {"seconds": 0},
    "/facilitator": {"receipt_timeout_s": 5},
}
"""What is sent to the actions that need it, or whose answer would be empty without it."""
FIRST = ("/faults", "/snapshot")
"""What is done before the world is read and before it begins again."""


def in_order() -> list[tuple[str, str]]:
    """Return every action: what makes something, what reads it, and all else."""
    return sorted(
        ACTIONS,
        key=lambda each: (each[0] == "GET") + 2 * (each[0] == "POST" and each[1] not in FIRST),
    )


def validator(api: dict[str, Any], schema: dict[str, Any]) -> "Draft202012Validator":
    """Return what judges a value by a schema of the document; fields that it lacks are wrong."""
    from jsonschema import Draft202012Validator

    strict = {
        name: each | {"additionalProperties": False}
        for name, each in api["components"]["schemas"].items()
    }
    return Draft202012Validator(schema | {"components": {"schemas": strict}})


def media(about: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the only media type of a body or an answer, and its schema."""
    ((name, found),) = about["content"].items()
    return name, found["schema"]


def test_it_is_valid_and_has_every_action_once() -> None:
    api = openapi()
    every = {(m.upper(), path) for path, item in api["paths"].items() for m in item}
    assert every == ACTIONS.keys()
    ids = [each["operationId"] for item in api["paths"].values() for each in item.values()]
    assert len({*ids}) == len(ids)
    # Markdown takes what a docstring's source indents for code
    assert "\n    " not in api["components"]["schemas"]["State"]["description"]
    from openapi_spec_validator import validate

    validate(json.loads(json.dumps(api)))


def test_each_operation_answers_as_the_document_says() -> None:
    with hosted() as server:
        server.account().paid()
        server.http.post("/_sim/accounts/failing", json={})
        server.http.get("/explorer/api/v1/ethproxy/getTransactionByHash?txHash=0x" + "11" * 32)
        api = server.http.get("/_sim/openapi.json").json()
        assert api == json.loads(json.dumps(openapi()))
        (base,) = (each["url"] for each in api["servers"])
        for method, path in in_order():
            about, sent = api["paths"][path][method.lower()], SENT.get(path)
            if method == "POST":
                assert about["requestBody"]["required"] is (
                    sent is not None and path != "/facilitator"
                )
                _, schema = media(about["requestBody"])
                validator(api, schema).validate(sent or {})
                answer = server.http.post(base + path, json=sent)
            else:
                answer = server.http.get(base + path)
            assert answer.status_code == 200, (path, answer.text)
            kind, schema = media(about["responses"]["200"])
            assert answer.headers["content-type"] == kind
            if kind == "application/json":
                assert answer.json() != [], path
                validator(api, schema).validate(answer.json())
            network = server.http.request(
                method, base + path, params={"network": "nowhere"}, json=sent
            )
            assert network.status_code == 400
            _, refused = media(api["components"]["responses"]["Refused"])
            validator(api, refused).validate(network.json())


def test_what_the_document_forbids_is_refused() -> None:
    api = openapi()
    with hosted() as server:
        for wrong in ({"seconds": -1}, {"seconds": "1"}, {}, {"seconds": 1, "more": 1}):
            _, schema = media(api["paths"]["/clock/advance"]["post"]["requestBody"])
            assert not validator(api, schema).is_valid(wrong)
            assert server.http.post("/_sim/clock/advance", json=wrong).status_code == 400
        assert server.http.get("/_sim/journal", params={"since": -1}).status_code == 400


def test_it_may_be_read_where_a_token_is_needed() -> None:
    async def statuses() -> list[int]:
        app = control_app(build(World()), "secret")
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://control"
        ) as http:
            return [(await http.get(path)).status_code for path in ("/openapi.json", "/state")]

    assert asyncio.run(statuses()) == [200, 401]
