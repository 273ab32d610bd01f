"""Calls and results of MCP tools as requests and answers of HTTP, and streams of events."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st

from x402sim.protocol import mcp, x402

REQUIRED: dict[str, Any] = {
    "x402Version": 2,
    "accepts": [{"scheme": "exact"}],
    "resource": {"url": "x"},
}
TEXT = [{"type": "text", "text": json.dumps(REQUIRED)}]
WRAPPED = [{"type": "text", "text": json.dumps({"x402/error": {"code": 402, "data": REQUIRED}})}]


@pytest.mark.parametrize(
    "result",
    [
        {"isError": True, "structuredContent": REQUIRED},
        {"isError": True, "content": TEXT},
        {"isError": True, "content": WRAPPED},
        {"isError": True, "structuredContent": {"x402/error": {"code": 402, "data": REQUIRED}}},
        {"isError": True, "structuredContent": {"other": 1}, "content": TEXT},
        {"resultType": "payment_required", "paymentRequired": REQUIRED},
    ],
)
def test_an_offer_is_a_402_wherever_it_stands(result: dict[str, Any]) -> None:
    found = mcp.answered({"result": result})
    assert found.status == 402
    assert x402.json_in(found.headers[x402.REQUIRED_HEADER]) == REQUIRED


@pytest.mark.parametrize(
    ("response", "status"),
    [
        ({"result": {"content": TEXT}}, 200),
        ({"result": {"isError": False, "structuredContent": REQUIRED}}, 200),
        ({"result": {"isError": True, "content": []}}, 500),
        ({"result": {"isError": True, "content": [{"type": "text", "text": "[" * 10**5}]}}, 500),
        ({"result": {"isError": True, "content": 1, "structuredContent": [], "_meta": 2}}, 500),
        ({"error": {"code": -32602, "message": "no"}}, 400),
        ({"error": {"code": -32000, "message": "no"}}, 500),
        ({"error": {"code": 402, "data": REQUIRED}}, 402),
        ({"result": 1}, 502),
        ({}, 502),
    ],
)
def test_other_results_have_a_status(response: dict[str, Any], status: int) -> None:
    assert mcp.answered(response).status == status


def test_what_became_of_a_payment_is_a_header() -> None:
    receipt = {"success": False, "transaction": "", "errorReason": "insufficient_funds"}
    meta = {"isError": True, "structuredContent": REQUIRED, "_meta": {mcp.RESPONSE: receipt}}
    inside = {"isError": True, "structuredContent": {**REQUIRED, mcp.RESPONSE: receipt}}
    for result in (meta, inside):
        headers = mcp.answered({"result": result}).headers
        assert x402.json_in(headers[x402.RESPONSE_HEADERS[2]]) == receipt


@pytest.mark.parametrize("version", x402.VERSIONS)
def test_a_payment_goes_into_a_call_and_comes_out_again(version: x402.Version) -> None:
    payment = {"x402Version": version, "payload": {"signature": "0x"}}
    header = {x402.PAYMENT_HEADERS[version]: x402.to_base64(payment)}
    params = mcp.params_of(mcp.Call("forecast", {"city": "Oslo"}), httpx.Headers(header))
    assert params["_meta"] == {mcp.PAYMENT: payment}
    assert mcp.payment_in(params) == header
    assert mcp.payment_in({"_meta": 1}) == mcp.payment_in({}) == {}


def test_an_answer_of_http_is_a_result_and_back() -> None:
    headers = {
        x402.REQUIRED_HEADER: x402.to_base64(REQUIRED),
        x402.RESPONSE_HEADERS[2]: x402.to_base64({"success": False}),
    }
    result = mcp.result_of(402, headers, b"{}", "mcp://tool/forecast")
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    again = mcp.answered({"result": result})
    assert again.status == 402
    wanted = {**REQUIRED, "resource": {"url": "mcp://tool/forecast"}}
    assert x402.json_in(again.headers[x402.REQUIRED_HEADER]) == wanted
    assert x402.json_in(again.headers[x402.RESPONSE_HEADERS[2]]) == {"success": False}
    served = mcp.result_of(200, {}, b'{"sky": "blue"}', "mcp://tool/forecast")
    assert served["structuredContent"] == {"sky": "blue"}
    failed = mcp.result_of(400, {}, b'{"error": "busy"}', "mcp://tool/forecast")
    assert mcp.answered({"result": failed}).status == 500


EVENTS = (
    b"\n: hello\n\nid: 1\ndata:\n\ndata: {\"id\": 7, \"method\": \"ping\"}\n\n"
    b"event: message\ndata: {\"id\": 8,\ndata:  \"result\": {}}\n\ndata: nothing of this\n\n"
)  # fmt: skip


@given(st.lists(st.integers(1, 9)), st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_events_are_read_in_any_pieces(cuts: list[int], end: bytes) -> None:
    text = EVENTS.replace(b"\n", end)
    incoming = mcp.Incoming("text/event-stream; charset=utf-8", 8)
    for size in [*cuts, *[3] * len(text)]:
        piece, text = text[:size], text[size:]
        if incoming.feed(piece):
            break
    assert incoming.response == {"id": 8, "result": {}}
    assert text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda each: st.lists(each, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            [
                *("result", "error", "data", "code", "message", "isError", "structuredContent", "content"),
                *("text", "_meta", mcp.RESPONSE, mcp.PAYMENT, "x402/error", "x402Version", "accepts"),
                *("resultType", "paymentRequired", "x"),
            ]
        ),
        each,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["result", "error", "id"]), JSON, max_size=3))
def test_whatever_a_server_answers_has_a_status(response: dict[str, Any]) -> None:
    found = mcp.answered(response)
    assert found.status in (200, 400, 402, 500, 502)
    assert all(text.isascii() and "\n" not in text for text in found.headers.values())
