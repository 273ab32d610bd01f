"""The MCP server of `serve`: a tool is sold as the same thing over HTTP is."""

import base64
import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.cli import runner
from tests.serve.driver import ORDER
from x402sim import Fault, LocalServer, PaymentAuth, World
from x402sim.events import PaymentSettled
from x402sim.payer.core import PaymentFailed
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.protocol import x402

MARKET = "/api/perp/market"


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


def rpc(server: LocalServer, method: str, number: Any = 1, **params: Any) -> httpx.Response:
    asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return httpx.post(f"{server.url}/mcp", json=asked)


def called(server: LocalServer, name: str, payment: Any = None, **arguments: Any) -> dict[str, Any]:
    paid = {} if payment is None else {"_meta": {"x402/payment": payment}}
    said = rpc(server, "tools/call", name=name, arguments=arguments, **paid).json()
    result: dict[str, Any] = said["result"]
    return result


def client(server: LocalServer, auth: PaymentAuth) -> httpx.Client:
    return httpx.Client(transport=ToolTransport(httpx.HTTPTransport()), auth=auth)


def signed(server: LocalServer, tool: str, **arguments: Any) -> dict[str, Any]:
    """A payment for what a tool asks, which was not sent yet."""
    kept: list[httpx.Request] = []

    def shop(request: httpx.Request) -> httpx.Response:
        kept.append(request)
        told = called(server, tool, **arguments)["structuredContent"]
        return httpx.Response(402, headers={x402.REQUIRED_HEADER: x402.to_base64(told)})

    auth = PaymentAuth(server.wallets[0])
    with (
        httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as http,
        pytest.raises(PaymentFailed),
    ):
        http.get("http://shop.test/")
    payment: dict[str, Any] = x402.json_in(kept[-1].headers[x402.PAYMENT_HEADERS[2]])
    return payment


def test_the_tools_are_listed_with_their_schemas(server: LocalServer) -> None:
    market, quote = rpc(server, "tools/list").json()["result"]["tools"]
    assert market["inputSchema"] == {"type": "object", "properties": {}}
    assert quote["inputSchema"]["required"] == list(ORDER)
    assert "\\Z" not in json.dumps(quote)


def test_an_unpaid_call_gets_the_offer_in_both_places(server: LocalServer) -> None:
    result = called(server, "market")
    assert result["isError"] is True
    required = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == required
    assert required["resource"]["url"] == "mcp://tool/market"
    assert required["accepts"][0]["amount"] == "10000"


def test_a_tool_is_bought_and_is_a_payment_like_any_other(server: LocalServer) -> None:
    before = len(server.transfers())
    auth = PaymentAuth(server.wallets[1])
    with client(server, auth) as http:
        quote = http.send(tool_request(f"{server.url}/mcp", "quote", ORDER)).json()
    assert quote["structuredContent"]["quote"]["pair"] == "BTC-USD"
    (transfer,) = server.transfers()[before:]
    assert quote["_meta"]["x402/payment-response"]["transaction"] == transfer.tx_hash
    assert auth.settlements[0].transaction == transfer.tx_hash
    settled = [it.event for it in server.journal if isinstance(it.event, PaymentSettled)]
    assert settled[-1].tx_hash == transfer.tx_hash


def page(request: Request) -> Any:
    """Return a page, compressed for whoever takes that, as most servers do."""
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return "a page"
    return Response(gzip.compress(b"a page"), headers={"content-encoding": "gzip"})


def test_a_tool_gives_what_http_gives_whatever_its_bytes_are() -> None:
    image = bytes(range(256))
    sells = {"GET /page 0.01": page, "GET /image 0.01": image}
    with LocalServer(sells=sells) as server, client(server, PaymentAuth(server.wallets[0])) as http:
        asked = [tool_request(f"{server.url}/mcp", name, {}) for name in ("get_page", "get_image")]
        for each in asked:
            each.headers["Accept-Encoding"] = "gzip"  # of the message, not of what is sold
        (text,), (data,) = (http.send(each).json()["content"] for each in asked)
    assert text == {"type": "text", "text": "a page"}
    assert data["type"] == "resource"
    assert base64.b64decode(data["resource"]["blob"]) == image
    assert data["resource"]["mimeType"] == "application/octet-stream"


@pytest.mark.parametrize("arguments", [[1], "7", 7, True, None, {}, {"name": "7"}])
def test_arguments_without_what_the_path_needs_are_wrong(arguments: Any) -> None:
    with LocalServer(sells={"GET /users/{id} 0.01": "one"}) as server:
        said = rpc(server, "tools/call", name="get_users_id", arguments=arguments).json()
    assert said["error"]["code"] == -32602


def test_pay_buys_a_tool(server: LocalServer) -> None:
    order = json.dumps(ORDER)
    done = runner.run("pay", f"{server.url}/mcp", "--tool", "quote", "--arguments", order)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["structuredContent"]["quote"]["pair"] == "BTC-USD"
    assert 'Paid: tool quote at /mcp, _meta["x402/payment"]: ok' in done.stderr
    wrong = runner.run("pay", f"{server.url}/mcp", "--tool", "quote", "--arguments", "{}")
    assert wrong.exit_code == 1
    assert "500 Invalid request body: Object missing required field `pair`" in wrong.stderr


def test_a_payment_buys_one_answer_of_its_own_tool(server: LocalServer) -> None:
    before, payment = len(server.transfers()), signed(server, "market")
    assert called(server, "quote", payment, **ORDER)["isError"] is True
    over_http = httpx.get(
        server.url + MARKET, headers={x402.PAYMENT_HEADERS[2]: x402.to_base64(payment)}
    )
    assert over_http.status_code == 402, "it is for the tool"
    assert len(server.transfers()) == before
    first = called(server, "market", payment)
    assert "market" in first["structuredContent"]
    assert called(server, "market", payment) == first, "its payer has named it"
    del payment["extensions"]
    again = called(server, "market", payment)
    assert again["isError"] is True
    assert again["_meta"]["x402/payment-response"]["success"] is False
    assert len(server.transfers()) == before + 1


@pytest.mark.parametrize(
    "payment", ["no payment", 7, [], {}, {"x402Version": 2}, {"x402Version": 9}]
)
def test_what_is_no_payment_is_an_offer_with_a_reason(server: LocalServer, payment: Any) -> None:
    result = called(server, "market", payment)
    assert result["isError"] is True
    assert result["structuredContent"]["error"].startswith("invalid_")
    assert result["structuredContent"]["accepts"]


def test_a_lost_answer_is_given_again() -> None:
    with LocalServer() as server:
        server.fault(Fault(victim="service", does="lose answer", contains="payment-signature"))
        auth = PaymentAuth(server.wallets[0])
        with client(server, auth) as http:
            request = tool_request(f"{server.url}/mcp", "market")
            with pytest.raises((httpx.HTTPError, PaymentFailed)):
                http.send(request)
            assert http.send(tool_request(f"{server.url}/mcp", "market")).is_success
        assert len(server.transfers()) == 1


def test_messages_that_are_no_calls(server: LocalServer) -> None:
    assert rpc(server, "ping").json()["result"] == {}
    said = rpc(server, "initialize", protocolVersion="2025-06-18").json()["result"]
    assert said["protocolVersion"] == "2025-06-18"
    newer = rpc(server, "initialize", protocolVersion="2099-01-01").json()["result"]
    assert newer["protocolVersion"] == "2025-11-25"
    assert rpc(server, "notifications/initialized", None).status_code == 202
    assert rpc(server, "resources/list").json()["error"]["code"] == -32601
    unknown = rpc(server, "tools/call", name="other").json()["error"]
    told = "there is no tool 'other'; there are market, quote"
    assert unknown == {"code": -32602, "message": told}
    assert rpc(server, "tools/call", name=["market"]).json()["error"]["code"] == -32602
    assert called(server, "quote", None)["isError"] is True
    for params in ({"_meta": 1}, {"_meta": {"x402/payment": {"resource": 1}}}, {"arguments": [1]}):
        odd = rpc(server, "tools/call", name="market", **params).json()["result"]
        assert odd["isError"] is True
    assert httpx.get(f"{server.url}/mcp").status_code == 405
    for body in (b"", b"[]", b"{}", b"[" * 10**5):
        assert httpx.post(f"{server.url}/mcp", content=body).status_code == 400


def test_web_pages_are_refused_and_a_world_without_a_service_has_no_tools(
    server: LocalServer,
) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Origin": "https://evil.example"}
    assert httpx.post(f"{server.url}/mcp", json=asked, headers=headers).status_code == 403
    with LocalServer(World(has_service=False)) as bare:
        url = bare.facilitator_url.removesuffix("/facilitator")
        assert httpx.post(f"{url}/mcp", json=asked).status_code == 404


def test_who_hangs_up_before_the_result_gets_it_with_the_same_payment() -> None:
    with LocalServer() as server:
        payment = signed(server, "market")
        del payment["extensions"]  # not named: so it is good for one answer
        server.fault(Fault(victim="facilitator", does="delay answer", seconds=1.0, path="/settle"))
        call = {"name": "market", "_meta": {"x402/payment": payment}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/mcp", json=asked, timeout=0.4)
        while not server.transfers():
            time.sleep(0.05)
        time.sleep(0.3)
        assert "market" in called(server, "market", payment)["structuredContent"]
        assert called(server, "market", payment)["isError"] is True, "it was served once"
        assert len(server.transfers()) == 1
