"""`PaymentAuth` pays for tools of MCP: over streamable HTTP, and through a client's session."""

import asyncio
import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.bounded.hostile_peer import wanted
from tests.payer.test_standard_servers import OFFER, VERSIONS, StandardShop
from x402sim import PaymentAuth, SpendingCapExceeded, Wallet
from x402sim.clock import Clock
from x402sim.http.bounded import Limits
from x402sim.payer.core import PaymentFailed
from x402sim.payer.tools import ToolTransport, call_paid, tool_request
from x402sim.protocol import mcp, x402
from x402sim.protocol.networks import BASE_SEPOLIA

URL = "http://shop.test/mcp"
TRANSACTION = "0x" + "ab" * 32
Rpc = dict[str, Any]


def required(error: str = "payment is required") -> Rpc:
    offer = {"payTo" if k == "pay_to" else k: v for k, v in OFFER.items()}
    offer["maxTimeoutSeconds"] = offer.pop("max_timeout_seconds")
    about = {"url": "mcp://tool/forecast"}
    return {"x402Version": 2, "error": error, "resource": about, "accepts": [offer]}


def asks(error: str = "payment is required") -> Rpc:
    it = required(error)
    text = {"type": "text", "text": json.dumps(it)}
    return {"isError": True, "structuredContent": it, "content": [text]}


def serves(words: str = "sunny") -> Rpc:
    receipt = {"success": True, "transaction": TRANSACTION, "network": "eip155:84532"}
    said = {"content": [{"type": "text", "text": words}]}
    return {**said, "_meta": {"x402/payment-response": receipt}}


@dataclass
class ToolShop:
    """A server of MCP with sessions; `results` say what paying calls get, one after the other."""

    results: list[Rpc | Callable[[httpx.Request], httpx.Response]] = field(default_factory=list)
    as_events: bool = False
    name: str = "forecast"
    session: str = "one"
    paid: list[Rpc] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        self.methods.append(asked["method"])
        assert not any(name in request.headers for name in x402.PAYMENT_HEADERS.values())
        if asked["method"] == "initialize":
            told = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
            return self._answer(asked, told, {"Mcp-Session-Id": self.session})
        assert request.headers["MCP-Protocol-Version"] == "2025-06-18"
        if request.headers["Mcp-Session-Id"] != self.session:
            return httpx.Response(404)
        if asked["method"] == "notifications/initialized":
            return httpx.Response(202)
        params = asked["params"]
        assert params["name"] == self.name
        payment = params.get("_meta", {}).get("x402/payment")
        if payment is None:
            return self._answer(asked, asks())
        self.paid.append(payment | {"for": params["arguments"]})
        result = self.results.pop(0) if self.results else serves()
        return self._answer(asked, result) if isinstance(result, dict) else result(request)

    def _answer(
        self, asked: Rpc, result: Rpc, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        said = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        if not self.as_events:
            return httpx.Response(200, json=said, headers=headers)
        body = b': it works\r\n\r\nevent: message\r\ndata: {\r\ndata: "method": "ping"}\r\n\r\n'
        body += b"data:" + json.dumps(said).encode() + b"\r\n\r\n"
        headers = {"Content-Type": "text/event-stream", **(headers or {})}

        def stream() -> Any:
            yield from (body[n : n + 7] for n in range(0, len(body), 7))
            raise AssertionError("nothing is read after the result")

        return httpx.Response(200, headers=headers, content=stream())

    @property
    def nonces(self) -> list[str]:
        return [each["payload"]["authorization"]["nonce"] for each in self.paid]


def payer(**options: Any) -> PaymentAuth:
    return PaymentAuth(Wallet.create(), network=BASE_SEPOLIA, **options)


def client(shop: Callable[[httpx.Request], httpx.Response], auth: PaymentAuth) -> httpx.Client:
    return httpx.Client(transport=ToolTransport(httpx.MockTransport(shop)), auth=auth)


def call(http: httpx.Client, **arguments: Any) -> httpx.Response:
    return http.send(tool_request(URL, "forecast", arguments))


@pytest.mark.parametrize("as_events", [False, True])
def test_a_tool_is_paid_and_its_result_is_the_answer(as_events: bool) -> None:
    shop, auth = ToolShop(as_events=as_events), payer()
    with client(shop, auth) as http:
        answer = call(http, city="Oslo")
    assert answer.json()["content"][0]["text"] == "sunny"
    assert [each.transaction for each in auth.settlements] == [TRANSACTION]
    assert shop.methods == ["initialize", "notifications/initialized", "tools/call", "tools/call"]
    (paid,) = shop.paid
    assert paid["for"] == {"city": "Oslo"}
    assert paid["resource"] == {"url": "mcp://tool/forecast"}


@pytest.mark.parametrize("as_events", [False, True])
def test_a_large_result_arrives(as_events: bool) -> None:
    rows = [{"row": n, "tags": ["a", "[" * 9]} for n in range(3000)]
    shop = ToolShop([serves(json.dumps(rows)) | {"structuredContent": {"rows": rows}}], as_events)
    with client(shop, payer()) as http:
        assert call(http).json()["structuredContent"]["rows"] == rows


DEEP = b"data: {" + b"[" * 3000 + b"\n\n"
EVENTS = {"Content-Type": "text/event-stream"}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((200, EVENTS, DEEP), r"cannot be read: .* nested too deeply"),
        ((303, {"Location": "/other"}), r"redirected to http://shop\.test/other"),
    ],
)
def test_what_is_no_result_is_told_and_its_payment_sent_again(answer: Any, told: str) -> None:
    status, headers, *content = answer
    given = {"content": content[0]} if content else {}
    shop = ToolShop([lambda _: httpx.Response(status, headers=headers, **given)])
    with client(shop, payer()) as http:
        http.follow_redirects = True
        with pytest.raises(httpx.RemoteProtocolError, match=told):
            call(http)
        assert call(http).status_code == 200
    assert len(set(shop.nonces)) == 1


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("forecast", "forecast"),
        ("天気", "=?base64?5aSp5rCX?="),
        ("été", "=?base64?w6l0w6k=?="),
        (" a", "=?base64?IGE=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_a_tool_has_any_name(name: str, header: str) -> None:
    """The headers equal MCP's of revision 2026-07-28, or decode to the name."""
    heard, shop, auth = list[tuple[str, str]](), ToolShop(name=name), payer()

    def hear(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        if asked["method"] == "tools/call":
            heard.append((asked["params"]["name"], request.headers["Mcp-Name"]))
        return shop(request)

    with client(hear, auth) as http:
        assert http.send(tool_request(URL, name, {"city": "Oslo"})).is_success
    assert set(heard) == {(name, header)}
    assert len(shop.paid) == 1


def test_an_async_client_pays_too() -> None:
    async def main() -> httpx.Response:
        transport = ToolTransport(httpx.MockTransport(ToolShop()))
        async with httpx.AsyncClient(transport=transport, auth=payer()) as http:
            return await http.send(tool_request(URL, "forecast", {"city": "Oslo"}))

    assert asyncio.run(main()).json()["content"][0]["text"] == "sunny"


def test_a_revision_that_no_header_can_carry_is_not_repeated() -> None:
    class Odd(ToolShop):
        def _answer(self, asked: Rpc, result: Rpc, *args: Any) -> httpx.Response:
            if asked["method"] == "initialize":
                result["protocolVersion"] = "2025–06"
            return ToolShop._answer(self, asked, result, *args)

        def __call__(self, request: httpx.Request) -> httpx.Response:
            if "MCP-Protocol-Version" in request.headers:
                assert request.headers["MCP-Protocol-Version"] == mcp.REVISIONS[0]
                request.headers["MCP-Protocol-Version"] = "2025-06-18"
            return ToolShop.__call__(self, request)

    with client(Odd(), payer()) as http:
        assert call(http).status_code == 200


def test_a_session_that_is_forgotten_is_begun_again_for_the_same_payment() -> None:
    shop = ToolShop()

    def forgets(request: httpx.Request) -> httpx.Response:
        shop.session = "two"
        return httpx.Response(404)

    shop.results = [forgets]
    with client(shop, payer()) as http:
        assert call(http).status_code == 200
    first, second = shop.nonces
    assert first == second
    assert shop.methods.count("initialize") == 2


def breaks(_: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the connection ended")


@pytest.mark.parametrize(
    "result",
    [
        breaks,
        lambda _: httpx.Response(200, json={"jsonrpc": "2.0"}),
        lambda _: httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=b": \n\n"),
        {"isError": True, "content": [{"type": "text", "text": "the tool failed"}]},
        {"isError": "true", "content": []},
        {"resultType": "payment_required", "paymentRequired": {"x402Version": 2, "error": "no"}},
        asks("unexpected_settle_error"),
    ],
)  # fmt: skip
def test_whatever_a_paid_call_gets_the_same_payment_is_sent_again(result: Any) -> None:
    shop = ToolShop([result])
    with client(shop, payer()) as http:
        with suppress(PaymentFailed, httpx.HTTPError):
            assert call(http, city="Oslo").is_error
        assert call(http, city="Bergen").is_success  # another call, which pays for itself
        assert call(http, city="Oslo").is_success
    first, other, again = shop.nonces
    assert first == again != other


def test_equal_arguments_in_another_order_send_the_same_payment_again() -> None:
    shop = ToolShop([breaks])
    with client(shop, payer()) as http:
        with suppress(PaymentFailed, httpx.HTTPError):
            call(http, city="Oslo", days=3)
        assert call(http, days=True, city="Oslo").is_success  # True is not 3
        assert call(http, days=3.0, city="Oslo").is_success
    first, other, again = shop.nonces
    assert first == again != other


def test_the_caps_hold_for_tools() -> None:
    shop = ToolShop()
    with client(shop, payer(max_amount="0.001")) as http, pytest.raises(SpendingCapExceeded):
        call(http)
    assert not shop.paid


def calling(answers: Callable[[httpx.Request], Any]) -> Callable[[httpx.Request], httpx.Response]:
    """A server that answers so to calls of tools, and with an empty result to anything else."""

    def serve(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        said = answers(request) if asked["method"] == "tools/call" else {"result": {}}
        if isinstance(said, httpx.Response):
            return said
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": asked.get("id"), **said})

    return serve


def test_an_offer_that_is_no_error_is_a_result() -> None:
    auth = payer()
    with client(calling(lambda _: {"result": {**asks(), "isError": False}}), auth) as http:
        assert call(http).json()["structuredContent"] == required()
    assert auth.signed_base == 0


@VERSIONS
def test_a_402_of_http_itself_is_paid_by_its_header(version: x402.Version) -> None:
    paid: list[str] = []

    def answers(request: httpx.Request) -> Any:
        assert "_meta" not in json.loads(request.content)["params"]
        if x402.PAYMENT_HEADERS[version] not in request.headers:
            return StandardShop(version).required()
        paid.append(request.headers[x402.PAYMENT_HEADERS[version]])
        return {"result": serves()}

    with client(calling(answers), payer()) as http:
        assert call(http).status_code == 200
    assert len(paid) == 1


def test_a_bill_of_http_ends_no_payment_in_the_call() -> None:
    shop, bills = ToolShop(), [httpx.Response(402, json={"detail": "the plan has ended"})]

    def serve(request: httpx.Request) -> httpx.Response:
        is_call = json.loads(request.content)["method"] == "tools/call"
        return bills.pop() if bills and is_call else shop(request)

    with client(serve, payer()) as http:
        assert [call(http).status_code for _ in range(2)] == [402, 200]
    assert len(shop.paid) == 1


def test_what_is_no_tool_is_an_error_and_nothing_is_signed() -> None:
    error = {"error": {"code": -32602, "message": "Unknown tool"}}
    with client(calling(lambda _: error), payer()) as http:
        answer = call(http)
    assert (answer.status_code, answer.json()) == (400, {"error": "Unknown tool"})
    with client(lambda _: httpx.Response(200, text="<p>hello</p>"), payer()) as http:
        assert call(http).status_code == 502


def test_an_answer_has_limits() -> None:
    endless = httpx.MockTransport(
        lambda _: httpx.Response(200, content=(b" " * 99 for _ in range(10**6)))
    )
    transport = ToolTransport(endless, Limits(max_answer_bytes=10_000))
    with httpx.Client(transport=transport) as http, pytest.raises(httpx.RemoteProtocolError):
        call(http)


# --- through a session ------------------------------------------------------------------


@dataclass
class Result:
    """What is used of a result of the package `mcp`."""

    said: Rpc

    def model_dump(self, **_: Any) -> Rpc:
        return self.said


@dataclass
class Session:
    """A session of an MCP client; the first `breaks` paying calls are lost."""

    breaks: int = 0
    paid: list[Rpc] = field(default_factory=list)

    async def call_tool(self, name: str, arguments: Rpc, *, meta: Rpc | None) -> Result:
        if meta is None:
            return Result(asks())
        self.paid.append(meta["x402/payment"])
        if len(self.paid) <= self.breaks:
            raise TimeoutError("no answer")
        return Result(serves(f"{name} {arguments}"))


def test_a_call_through_a_session_asks_no_node() -> None:
    may = {"permit2": True, "approve": "1", "rpc_url": "http://node"}
    with pytest.raises(ValueError, match="without `approve`"):
        asyncio.run(call_paid(Session(), payer(**may), "forecast", server="one"))


@pytest.mark.parametrize(
    ("one", "two"), [("one", "two"), ("alice@corp", "bob@corp"), ("a?1", "a?2"), ("Shop", "shop")]
)
def test_a_server_is_not_sent_what_another_was_paid(one: str, two: str) -> None:
    """A lost payment is sent again in another session with its server, and in none with another."""

    async def main() -> None:
        first, other, again, auth = Session(breaks=1), Session(), Session(), payer()
        asked = auth, "forecast", {"city": "Oslo"}
        with pytest.raises(TimeoutError, match="no answer"):
            await call_paid(first, *asked, server=one)
        await call_paid(other, *asked, server=two)
        result = await call_paid(again, *asked, server=one)
        assert result.said["content"][0]["text"] == "forecast {'city': 'Oslo'}"
        assert first.paid == again.paid
        assert first.paid != other.paid
        assert auth.signed_base == 20_000

    asyncio.run(main())


def test_a_call_of_json_rpc_is_one_purchase_whatever_its_id() -> None:
    """An MCP client that sends Mcp-Name itself, and has the payer as httpx authentication."""
    nonces = set[str]()

    def serve(request: httpx.Request) -> httpx.Response:
        if (text := request.headers.get("PAYMENT-SIGNATURE")) is None:
            headers = {
                "PAYMENT-REQUIRED": base64.b64encode(json.dumps(required()).encode()).decode()
            }
            return httpx.Response(402, headers=headers)
        nonces.add(json.loads(base64.b64decode(text))["payload"]["authorization"]["nonce"])
        raise httpx.ReadTimeout("lost")

    auth = payer()
    with httpx.Client(transport=httpx.MockTransport(serve), auth=auth) as http:
        for number in range(3):
            params = {"name": "forecast", "arguments": {"city": "Oslo"}, "_meta": {"t": number}}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            with pytest.raises(httpx.ReadTimeout):
                http.post(URL, json=message, headers={"Mcp-Name": "forecast"})
    assert (len(nonces), auth.signed_base) == (1, 10_000)


def test_a_402_to_initialize_refuses_no_payment() -> None:
    """The payment was not shown; the server may have settled it, and lost the answer."""
    now, bill = [1_800_000_000.0], [False]

    def lose(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("lost")

    shop = ToolShop([lose])

    def serve(request: httpx.Request) -> httpx.Response:
        if bill[0] and json.loads(request.content)["method"] == "initialize":
            return httpx.Response(402, json=required("pay first"))
        return shop(request)

    auth = payer(clock=Clock(lambda: now[0]))
    with client(serve, auth) as http, pytest.raises(httpx.ReadTimeout):
        call(http)
    now[0] += 1000
    bill[0] = True
    with client(serve, auth) as http:
        assert call(http).status_code == 502
    assert (auth.signed_base, len(shop.paid)) == (10_000, 1)
    bill[0] = False
    with client(serve, auth) as http:
        assert call(http).status_code == 200
    assert len(set(shop.nonces)) == 1


def test_a_session_signs_no_offer_that_it_cannot_carry() -> None:
    """In two steps a payment is posted to a path of the server; a session has none."""

    class TwoSteps(Session):
        async def call_tool(self, name: str, arguments: Rpc, *, meta: Rpc | None) -> Result:
            offer = wanted("/one") | {"paymentId": "pay_123456789", "x402Version": 1, "accepts": []}
            return Result({"isError": True, "structuredContent": offer, "content": []})

    async def main() -> None:
        auth = PaymentAuth(Wallet.create(), network="cronos-testnet")
        with pytest.raises(PaymentFailed, match="no way to pay that this payer can take"):
            await call_paid(TwoSteps(), auth, "forecast", server="one")
        assert auth.signed_base == 0

    asyncio.run(main())
