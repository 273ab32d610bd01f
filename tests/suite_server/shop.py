"""A shop that does everything right, and one switch for each thing that a shop gets wrong.

`Shop(given, defects, habits)` is an ASGI application that sells by both versions of the standard.
`python -m tests.suite_server.shop DEFECT…` serves one, as the judge starts it. It keeps what became
of each payment, in a file that several of it share and that outlives it; what is not known is asked
again of the facilitator, and not charged again. It shares nothing of our service, so that the judge is
held against another one than ours.
"""

import asyncio
import base64
import hashlib
import itertools
import json
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import finalize

import httpx

from x402sim.protocol.crypto import BadSignature, checksum, from_hex, recover
from x402sim.protocol.networks import BASE_SEPOLIA, Network

if TYPE_CHECKING:  # a shop that is a command starts in half the time without the judge
    from x402sim.suite.server.room import Given

PRICES = {
    ("GET", "/weather"): 10_000,
    ("GET", "/forecast"): 20_000,
    ("GET", "/tides"): 10_000,
    ("GET", "/stream"): 5_000,
    ("POST", "/report"): 30_000,
}
ASK_S, LONGEST_S = 6.0, 300
"""Seconds for the facilitator, which a play holds for `HELD_S`; a busy machine may stand still."""
OWN_HOST = "shop.example"
SLOW_S, PIECES, PIECE_S = 1.2, 4, 0.1
EXPOSED = "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE"
CACHED = {
    "cacheable": {"cache-control": "public, max-age=60"},
    "cacheable goods": {"cache-control": "public, max-age=60"},
    "public": {"cache-control": "public"},
    "says nothing of caches": {"cache-control": ""},
    "names the payment in vary": {
        "cache-control": "max-age=60", "vary": "PAYMENT-SIGNATURE, X-Payment"
    },
}  # fmt: skip
"""By defect: what caches are told; an empty header is left out."""
BEHIND: Mapping[str, Callable[[str], str]] = {
    "decodes behind the wall": unquote,
    "decodes before the wall": unquote,
    "merges slashes behind the wall": lambda raw: "/" + raw.strip("/").replace("//", "/"),
    "small letters behind the wall": str.lower,
}
"""By defect: how the text of a path is read by what serves."""


class Malformed(Exception):
    """The header is no payment."""


class Unknown(Exception):
    """The facilitator did not say what became of it."""


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: int = 1
    then: Callable[[], Awaitable[None]] | None = None
    """What is done when it is sent."""

    @property
    def content(self) -> bytes:
        """The body as bytes, which it may be already; JSON otherwise."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body or b""
        return json.dumps(self.body).encode()


@dataclass(frozen=True)
class Order:
    """What is requested, and the payment that is shown for it, of one of the versions."""

    method: str
    path: str
    query: str
    body: bytes
    version: int = 2
    payment: Any = None

    @property
    def authorization(self) -> Any:
        return _authorization(self.payment["payload"])

    @property
    def key(self) -> str:
        return f"{self.authorization.get('from')} {self.authorization['nonce']}".lower()

    @property
    def receipt_name(self) -> str:
        return ("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")[self.version == 1]


def _authorization(payload: Any) -> Any:
    if not isinstance(payload, dict):
        return None
    return payload.get("authorization", payload.get("permit2Authorization"))


class Store:
    """By nonce: what it was for, and the answer; None is in progress, "unknown" is not known."""

    def __init__(self, folder: str) -> None:
        where = f"{folder}/known.sqlite" if folder else ":memory:"
        self.rows = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
        finalize(self, self.rows.close)
        self.rows.execute("PRAGMA synchronous=OFF")
        self.rows.execute("CREATE TABLE IF NOT EXISTS known (nonce PRIMARY KEY, what, answer)")
        # nobody works any more on what was in progress when it ended
        self.rows.execute("UPDATE known SET answer = '\"unknown\"' WHERE answer = 'null'")

    def get(self, nonce: str) -> tuple[str, Any] | None:
        row = self.rows.execute(
            "SELECT what, answer FROM known WHERE nonce = ?", [nonce]
        ).fetchone()
        if row is None:
            return None
        answer = json.loads(row[1])
        return row[0], Reply(**answer) if isinstance(answer, dict) else answer

    def claim(self, nonce: str, what: str) -> bool:
        """Keep that a payment is in progress; False if it is known already."""
        done = self.rows.execute("INSERT OR IGNORE INTO known VALUES (?, ?, 'null')", [nonce, what])
        return done.rowcount == 1

    def put(self, nonce: str, what: str, answer: Any) -> None:
        text = json.dumps(
            {"status": answer.status, "body": answer.body, "headers": dict(answer.headers),
             "pieces": answer.pieces} if isinstance(answer, Reply) else answer
        )  # fmt: skip
        self.rows.execute("INSERT OR REPLACE INTO known VALUES (?, ?, ?)", [nonce, what, text])

    def drop(self, nonce: str) -> None:
        self.rows.execute("DELETE FROM known WHERE nonce = ?", [nonce])


async def received(scope: Any, receive: Any) -> tuple[dict[str, str], bytes]:
    """Return the headers of a request, by their names in small letters, and its body."""
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return headers, body


async def break_off() -> None:
    raise ConnectionAbortedError


def at(in_s: float) -> str:
    when = datetime.now(UTC) + timedelta(seconds=in_s)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


@dataclass
class Shop:
    """Sells; `defects` are what it gets wrong, `habits` what an honest shop may do differently."""

    facilitator: str
    pay_to: str
    network: Network
    defects: frozenset[str] = frozenset()
    habits: frozenset[str] = frozenset()
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    folder: str = ""
    rpc_url: str = ""
    is_dead: bool = False
    made: int = 0
    """How often handlers have run."""
    is_open: bool = False
    sells: int = 0
    """How many payments are under way."""
    requests: int = 0
    owed: dict[str, Any] = field(default_factory=dict)
    minded: dict[str, Any] = field(default_factory=dict)

    settler: str = ""
    """The account that settles `upto`."""
    host: str = OWN_HOST
    challenges: Any = field(default_factory=lambda: itertools.count(1))
    nonces: set[str] = field(default_factory=set)
    """Those of challenges that nobody has used yet."""

    def __post_init__(self) -> None:
        self.memory, self.disk = Store(""), Store(self.folder)

    @property
    def known(self) -> Store:
        return self.memory if self.has("keeps it in memory") else self.disk

    def has(self, name: str) -> bool:
        return name in self.defects or name in self.habits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        headers, body = await received(scope, receive)
        leaves = asyncio.create_task(receive())
        work = asyncio.create_task(self.reply(scope, headers, body))
        if self.has("forgets who leaves"):
            await asyncio.wait([work, leaves], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                self.known.drop(self.shown(headers, body).key)
                return
        reply = await work
        content = reply.content
        told = {"content-type": "application/json", "content-length": str(len(content))}
        if reply.pieces > 1:
            del told["content-length"]
        if not self.has("no cors"):
            told["access-control-allow-origin"] = "*"
            if not self.has("exposes nothing"):
                told["access-control-expose-headers"] = EXPOSED
        told["cache-control"] = "no-store"
        for defect, said in CACHED.items():
            if self.has(defect) and not (defect == "cacheable goods" and reply.status == 402):
                told |= said
        told = {name: value for name, value in told.items() if value}
        told |= {name.lower(): value for name, value in reply.headers.items()}
        if self.has("hides its length"):
            del told["content-length"]
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [(n.encode(), v.encode("latin-1")) for n, v in told.items()],
            }
        )
        is_head = scope["method"] == "HEAD"
        for piece in range(0 if is_head else reply.pieces - 1):
            size = len(content) // reply.pieces
            part = content[piece * size : (piece + 1) * size]
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(PIECE_S)
        rest = b"" if is_head else content[(reply.pieces - 1) * (len(content) // reply.pieces) :]
        if reply.then is not None and not (self.has("stops for who leaves") and leaves.done()):
            await reply.then()
        await send({"type": "http.response.body", "body": rest})
        leaves.cancel()

    # --- what is asked for -----------------------------------------------------------------

    async def reply(self, scope: Any, headers: Mapping[str, str], body: bytes) -> Reply:
        raw, query = (scope[each].decode("latin-1") for each in ("raw_path", "query_string"))
        try:
            return await self.answer(scope["method"], raw, query, headers, body)
        except Malformed as wrong:
            return Reply(500 if self.has("5xx for malformed") else 400, {"error": str(wrong)})

    def shown(self, headers: Mapping[str, str], body: bytes) -> Order:
        """Return the payment that a request shows."""
        found = self.payment_in(headers)
        assert found is not None
        return Order("", "", "", body, *found)

    async def answer(
        self, method: str, raw: str, query: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        is_told = self.has("takes the host for its domain") or self.has("names the inner scheme")
        own = "127.0.0.1:8000" if self.has("names the inner address") else OWN_HOST
        self.host = headers["host"] if is_told else own
        if self.has("serves one name") and headers["host"].partition(":")[0] != "127.0.0.1":
            return Reply(400, {"error": "no such host"})
        self.requests += 1
        if self.has("sells upto") and not self.settler:
            async with httpx.AsyncClient(trust_env=False, verify=False) as http:
                kinds = (await http.get(f"{self.facilitator}/supported")).json()["kinds"]
            extras = [each["extra"] for each in kinds if each["scheme"] == "upto"]
            self.settler = extras[0]["facilitatorAddress"]
        is_page = self.has("a page for browsers") and "payment-signature" not in headers
        is_page |= self.has("a page that cannot be paid")
        if "text/html" in headers.get("accept", "") and is_page:
            return Reply(402, "<p>pay</p>", {"Content-Type": "text/html"})
        if self.is_dead:
            return Reply(500, {"error": "dead"})
        if self.has("dies of a long header"):
            self.is_dead = len(headers.get("payment-signature", "")) == 6000
        path = next((read(raw) for name, read in BEHIND.items() if self.has(name)), raw)
        guarded = path if self.has("decodes before the wall") else raw
        if self.has("guards whole targets") and query:
            guarded += f"?{query}"
        if (page := self.free_pages().get(path)) is not None:
            return Reply(200, page())
        if method == "OPTIONS":
            if self.has("preflight is asked to pay") and guarded == "/weather":
                return self.ask("/weather", "pay first")
            allowed = "PAYMENT-SIGNATURE, X-PAYMENT, Content-Type"
            return Reply(204, None, {"Access-Control-Allow-Headers": allowed})
        wanted = "GET" if method == "HEAD" else method
        overridden = headers.get("x-http-method-override") == "GET"
        if self.has("overrides behind the wall") and overridden:
            wanted = "GET"
        elif method == "POST" and self.has("any method behind the wall"):
            wanted = "GET" if path != "/report" else "POST"
        if (wanted, path) not in PRICES:
            if self.has("has an envelope"):
                return Reply(200, {"success": False, "data": {}, "error": "nothing here"})
            return Reply(404 if path not in dict(PRICES) else 405, {"error": "nothing here"})
        order = Order(wanted, path, query, body)
        is_free = {
            "head is free": method == "HEAD",
            "odd bodies are free": body[:1] not in (b"{", b""),
            "serves a part before the wall": "range" in headers,
            "believes in a gateway": "x-payment-verified" in headers,
            "is open once it was paid": self.is_open,
            "takes the old header for a payment": "x-payment" in headers,
            "believes a hash": headers.get("payment-signature", "").startswith("0x"),
        }
        # the wall looks at another text
        is_past = (method, guarded) not in PRICES and method != "HEAD"
        if is_past or any(is_so and self.has(name) for name, is_so in is_free.items()):
            return Reply(200, self.content(order))
        if method == "HEAD" and not self.has("head pays"):
            return self.ask(path, "pay for a GET")
        if "sign-in-with-x" in headers and self.lets_in(headers, path):
            return Reply(200, self.content(order))
        found = self.payment_in(headers)
        if found is None:
            asked = self.ask(path, "no payment")
            is_leaking = self.has("leaves the goods in each 402")
            return replace(asked, body=self.content(order)) if is_leaking else asked
        self.sells += 1
        try:
            if self.has("sells one at a time") and self.sells > 1:
                return Reply(429, {"error": "one at a time"}, {"Retry-After": "1"})
            reply = await self.careless(replace(order, version=found[0], payment=found[1]))
        finally:
            self.sells -= 1
        self.is_open |= reply.status == 200 and self.has("is open once it was paid")
        if self.has("leaves the goods in refusals") and reply.status in (402, 503):
            return replace(reply, body=self.content(order))
        if self.has("refuses in the fields of its goods") and reply.status in (402, 503):
            return replace(reply, body={"number": 0, "weather": reply.status})
        if self.has("accepts jobs") and reply.status == 200:
            return replace(reply, status=202)
        return reply

    def free_pages(self) -> Mapping[str, Callable[[], Any]]:
        def free() -> Any:
            is_alike = self.has("has a free page like its goods")
            return self.content(Order("GET", "/weather", "", b"")) if is_alike else {"free": True}

        gone = [f"http://{self.host}/gone"] if self.has("lists what is gone") else []
        listed = {"version": 1, "resources": [f"http://{self.host}/weather", *gone]}
        return {
            "/discovery/resources": self.catalogue,
            "/count": lambda: {"runs": self.made},
            "/.well-known/x402": lambda: listed,
            **dict.fromkeys(("/free", "/health"), free),
        }

    def content(self, order: Order) -> Any:
        """Make what is sold."""
        sold = self._content(order)
        return (
            {"success": True, "data": sold, "error": None} if self.has("has an envelope") else sold
        )

    def _content(self, order: Order) -> Any:
        path = order.path
        self.made += 1
        if self.has("counts requests"):
            number = self.requests
        else:
            number = 0 if self.has("sells the same each time") else next(self.numbers)
        if path == "/forecast":
            return {"number": number, "city": parse_qs(order.query).get("city", [""])[0]}
        if path == "/stream":
            return {"number": number, "text": "x" * 200}
        if path == "/report":
            try:
                title = json.loads(order.body).get("title")
            except (ValueError, AttributeError):
                title = None
            return {"number": number, "title": title}
        return {"number": number, "weather": "sunny"}

    # --- the offer -------------------------------------------------------------------------

    def requirements(self, version: int, path: str) -> dict[str, Any]:
        amount = next(price for (_, each), price in PRICES.items() if each == path)
        network = self.network
        wanted: dict[str, Any] = {
            "scheme": "exact",
            "network": network.caip2 if version == 2 else network.name,
            "asset": checksum(network.asset),
            "payTo": self.pay_to,
            "maxTimeoutSeconds": 60,
            "extra": {"name": network.token_name, "version": network.token_version},
        }
        if self.has("another name of the token"):
            wanted["extra"]["name"] = "USD Coin of nobody"
        if self.has("says that it is paid upfront"):
            wanted["extra"]["paymentFlow"] = "upfront"
        if version == 2:
            return wanted | {"amount": amount if self.has("amount is a number") else str(amount)}
        if self.has("another price in the body"):
            amount *= 2
        if self.has("writes both amounts"):
            wanted["amount"] = str(amount)
        return wanted | {
            "maxAmountRequired": str(amount),
            "resource": f"http://{self.host}{path}",
            "description": "a report",
            "mimeType": "application/json",
        }

    def upto(self, path: str) -> dict[str, Any]:
        """The offer of what is sold by its use: the price is the most."""
        wanted = self.requirements(2, path)
        extra = wanted["extra"] | {"facilitatorAddress": self.settler}
        return wanted | {"scheme": "upto", "extra": extra}

    def used(self, order: Order, wanted: Any) -> int:
        """Return what an order uses of the most: two fifths, or what its query says."""
        most = int(wanted["amount"])
        if "used=nothing" in order.query or self.has("settles nothing"):
            return 0
        if self.has("answers from a cache"):
            key = f"{order.path}?{order.query} {order.body!r}"
            return 0 if self.minded.setdefault(key, order.key) != order.key else most * 2 // 5
        return 2 * most if "used=more" in order.query else most * 2 // 5

    def offers(self, path: str) -> list[dict[str, Any]]:
        """The offers of version 2: one, or another network's before it and a dearer one behind."""
        wanted = self.requirements(2, path)
        if self.has("asks for more each time"):
            wanted["amount"] = str(int(wanted["amount"]) + next(self.challenges))
            self.minded[wanted["amount"]] = wanted
        if self.has("sells upto"):
            return [wanted, self.upto(path)]
        if self.has("sells permit2"):
            named = {} if self.has("leaves the token unnamed") else wanted["extra"]
            return [wanted, wanted | {"extra": named | {"assetTransferMethod": "permit2"}}]
        if self.has("sells on base"):
            return [wanted, self.on_base(wanted, 2)]
        if not (self.has("several offers") or self.has("settles the first offer")):
            return [wanted]
        elsewhere = wanted | {
            "network": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
            "asset": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
            "payTo": "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4",
        }
        return [elsewhere, wanted, wanted | {"amount": str(2 * int(wanted["amount"]))}]

    def on_base(self, wanted: dict[str, Any], version: int) -> dict[str, Any]:
        """The same offer on the chain that most shops sell on."""
        asset = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
        return wanted | {"network": ("base", "eip155:8453")[version - 1], "asset": asset}

    def ask(self, path: str, error: str, result: Any = None, version: int = 2) -> Reply:
        headers = {}
        is_told = version == 2 or not self.has("reason in the body of version 1")
        if result is not None and is_told and not self.has("no result of refusals"):
            headers[("PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE")[version == 1]] = encoded(result)
        body: dict[str, Any] = {"x402Version": 1, "error": error}
        body["accepts"] = [self.requirements(1, path)]
        if self.has("sells on base"):
            body["accepts"].append(self.on_base(body["accepts"][0], 1))
        if self.has("no error"):
            body.pop("error")
        if not self.has("version 1 only"):
            required = {
                "x402Version": 2,
                "error": error,
                "resource": {"url": f"http://{self.host}{path}"},
                "accepts": self.offers(path),
                "extensions": self.extensions(path),
            }
            if self.has("no error"):
                required.pop("error")
            if self.has("no resource"):
                required.pop("resource")
            headers["PAYMENT-REQUIRED"] = encoded(required)
        if self.has("another price in a body of version 2"):
            cheap = {**self.requirements(2, path), "amount": "1"}
            body = {"x402Version": 2, "error": error, "accepts": [cheap]}
        return Reply(402, body, headers)

    def extensions(self, path: str) -> dict[str, Any]:
        named = {"required": self.has("ids are required")}
        self.nonces.add(
            nonce := hashlib.sha256(f"{next(self.challenges)}".encode()).hexdigest()[:32]
        )
        info = {"domain": self.host, "uri": f"http://{self.host}{path}", "version": "1",
                "nonce": nonce, "issuedAt": at(0), "expirationTime": at(LONGEST_S)}  # fmt: skip
        chains = [{"chainId": self.network.caip2, "type": "eip191"}]
        return {
            "bazaar": self.described(path),
            "payment-identifier": {"info": named, "schema": {"type": "object"}},
            "sign-in-with-x": {"info": info, "supportedChains": chains, "schema": {}},
        }

    def described(self, path: str) -> dict[str, Any]:
        method = next(method for method, each in PRICES if each == path)
        given: dict[str, Any] = {"type": "http", "method": method}
        if path == "/forecast":
            given["queryParams"] = {"city": "Rome"}
        if method == "POST":
            given |= {"bodyType": "json", "body": {"title": "an example"}}
        if self.has("describes another method"):
            given["method"] = "DELETE"
        example = {"/weather": {"weather": "foggy"}}.get(path, {"number": 7})
        if self.has("another example"):
            example = {"humidity": 60}
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "input": {
                    "type": "object",
                    "properties": {
                        "type": {"type": "string", "const": "http"},
                        "method": {"type": "string", "enum": [method, given["method"]]},
                        "body": {"type": "object"},
                    },
                    "required": ["type", "method"],
                }
            },
            "required": ["input"],
        }
        if self.has("not as its schema"):
            schema["required"].append("operation")
        info = {"input": given, "output": {"type": "json", "example": example}}
        return {"info": info, "schema": schema}

    def catalogue(self) -> dict[str, Any]:
        items = [
            {
                "resource": f"http://{self.host}{path}",
                "type": "http",
                "x402Version": 2,
                "accepts": [self.requirements(2, path)],
                "lastUpdated": 1_790_000_000,
            }
            for _, path in PRICES
        ]
        if self.has("lists old prices"):
            items[1]["accepts"][0]["amount"] = "1"
        return {"x402Version": 2, "items": items}

    def lets_in(self, headers: Mapping[str, str], path: str) -> bool:
        from x402sim.suite.server.payment import digest, message

        said = json.loads(base64.b64decode(headers["sign-in-with-x"]))
        try:
            signer = checksum(recover(digest(message(said)), from_hex(said["signature"], 65)))
        except (BadSignature, ValueError):
            return False
        is_here = said["domain"] == self.host and urlsplit(said["uri"]).netloc == self.host
        is_now = at(-LONGEST_S) <= said["issuedAt"] <= at(0) and said.get("notBefore", "") < at(0)
        is_now = is_now and said.get("expirationTime", "3") > at(0)
        is_new = said["nonce"] in self.nonces
        if not self.has("lets in twice"):
            self.nonces.discard(said["nonce"])
        if self.has("trusts the address"):
            signer = said["address"]
        has_paid = self.known.get(f"{signer} {path}") is not None
        return (
            (is_here or self.has("takes any domain"))
            and (is_now or self.has("lets in for ever"))
            and is_new
            and (has_paid or self.has("lets any wallet in"))
        )

    # --- the payment -----------------------------------------------------------------------

    def payment_in(self, headers: Mapping[str, str]) -> tuple[int, Any] | None:
        names = {2: "payment-signature", 1: "x-payment"}
        for version, name in names.items():
            text = headers.get(name)
            if text is None:
                continue
            try:
                payment = json.loads(base64.b64decode(text, validate=True))
            except (ValueError, RecursionError):
                if self.has("any header pays"):
                    return version, None
                raise Malformed(f"{name} is not base64 of JSON") from None
            payload = payment.get("payload") if isinstance(payment, dict) else None
            auth = _authorization(payload)
            if not isinstance(auth, dict) or not isinstance(auth.get("nonce"), str):
                raise Malformed(f"{name} holds no payment")
            if payment.get("x402Version") != version:
                raise Malformed(f"{name} is not of version {version}")
            return version, payment
        return None

    async def paid(self, order: Order) -> Reply:
        payment = order.payment
        if payment is None:
            return Reply(200, self.content(order))
        extension = payment.get("extensions", {}).get("payment-identifier", {}).get("info", {})
        named = extension.get("id") if order.version == 2 else None
        is_wanted = order.version == 2 and self.has("ids are required")
        if self.has("ids are forgotten") or (named is None and not is_wanted):
            return await self.bought(order)
        if named is None:
            return Reply(400, {"error": "an id is required"})
        whole = hashlib.sha256(json.dumps(payment, sort_keys=True).encode()).hexdigest()
        before = self.known.get(f"id {named}")
        if before is not None and self.has("ids are looked up alone"):
            return before[1] or Reply(409, {"error": "in progress"})
        if before is not None and before[0] != whole:
            is_blank = set(payment["payload"]["signature"]) <= set("0x")
            if is_blank and self.has("checks the signature before it looks up an id"):
                return self.refuse(order, "invalid signature")
            return Reply(409, {"error": "this id is another payment's"})
        if before is not None and before[1] and self.has("answers from a cache"):
            return before[1]
        if not self.has("claims ids late"):
            self.known.put(f"id {named}", whole, None)
        reply = await self.bought(order)
        if reply.status < 400:
            self.known.put(f"id {named}", whole, reply)
        elif reply.status in (400, 402) and before is None:
            self.known.drop(f"id {named}")
        return reply

    async def bought(self, order: Order) -> Reply:
        version, payment, path = order.version, order.payment, order.path
        wanted = self.requirements(version, path)
        if version == 2 and payment.get("accepted") in self.offers(path)[1:]:
            chosen = payment["accepted"]
            if not self.has("settles the first offer"):
                wanted = chosen
        if self.has("believes what was accepted") and version == 2:
            wanted = payment.get("accepted", wanted)
        if self.has("believes the token that was accepted") and version == 2:
            given = payment.get("accepted") or {}
            wanted = wanted | {n: given.get(n) for n in ("asset", "network")}
        if self.has("asks for more each time") and version == 2:
            wanted = self.minded.get(payment["accepted"]["amount"], wanted)
        named = payment.get("accepted") if version == 2 else payment
        keys = wanted if version == 2 else ("scheme", "network")
        if self.has("sells on base"):
            elsewhere = self.on_base(wanted, version)
            keys = ("scheme", "network")
            is_there = isinstance(named, dict) and named.get("network") == elsewhere["network"]
            wanted = elsewhere if is_there else wanted
        is_same = isinstance(named, dict) and all(named.get(k) == wanted[k] for k in keys)
        if not is_same and not self.has("does not compare"):
            return self.ask(path, "it is for another offer")
        nonce, signed = order.key, json.dumps(payment["payload"], sort_keys=True)
        signed = "" if self.has("answers who knows a nonce") else signed.lower()
        asked = f"{order.method} {path}?{order.query} {signed}".encode() + order.body
        what = hashlib.sha256(asked).hexdigest()
        if self.has("forgets what it was for"):
            what = ""
        before = self.known.get(nonce)
        if before is None and not self.has("claims late") and not self.known.claim(nonce, what):
            before = self.known.get(nonce)
        if before is not None and not self.has("keeps nothing"):
            return await self.again(order, before, what, wanted)
        reply = await self.settled(order, wanted)
        if reply.status == 200:
            payer = checksum(from_hex(order.authorization["from"], 20))
            self.known.put(f"{payer} {path}", "", "paid")
        given_back = {402, 502}
        told = reply.headers.get(order.receipt_name, "")
        if told and json.loads(base64.b64decode(told)).get("amount") == "0":
            given_back.add(reply.status)  # the payment is good still
        if self.has("forgets what is unknown"):
            given_back.add(503)
        if reply.status in given_back:
            self.known.drop(nonce)
        else:
            self.known.put(nonce, what, "unknown" if reply.status == 503 else reply)
        return reply

    async def again(self, order: Order, before: Any, what: str, wanted: Any) -> Reply:
        of, answer = before
        if self.has("verifies before it looks up"):
            return await self.settled(order, wanted)
        if self.has("stores no receipt") and isinstance(answer, Reply):
            return Reply(answer.status, answer.body)
        if self.has("serves again"):
            return Reply(200, self.content(order))
        if of != what:
            return self.ask(order.path, "this payment has bought something else")
        if answer is None:
            return Reply(409, {"error": "in progress"}, {"Retry-After": "1"})
        if answer == "unknown":
            if self.has("says unknown for ever"):
                return Reply(503, {"error": "not known yet"}, {"Retry-After": "1"})
            reply = await self.settled(order, wanted, is_verified=True)
            if reply.status < 400:
                self.known.put(order.key, what, reply)
            elif reply.status == 402:  # it may be settled all the same
                return Reply(503, {"error": "not known yet"}, {"Retry-After": "1"})
            return reply
        if self.has("refuses what was served"):
            return Reply(409, {"error": "served already"})
        assert isinstance(answer, Reply)
        if self.has("says that it was served before"):
            return replace(answer, body={**answer.body, "is_kept": True})
        return answer

    async def settled(self, order: Order, wanted: Any, *, is_verified: bool = False) -> Reply:
        path, query = order.path, order.query
        asked = {
            "x402Version": order.version,
            "paymentPayload": order.payment,
            "paymentRequirements": wanted,
        }
        if self.has("goes by what was signed"):
            named = {"accepted": wanted, "scheme": "exact", "network": wanted["network"]}
            asked["paymentPayload"] = {**order.payment, **named, "x402Version": order.version}
        is_lax = self.has("truthy")
        if self.has("works before it verifies"):
            self.content(order)
        if not is_verified and not self.has("never verifies"):
            try:
                said = await self.post("/verify", asked)
            except Unknown:
                if self.has("open when verify fails"):
                    return Reply(200, self.content(order))
                return Reply(502, {"error": "the facilitator does not answer"})
            valid = said.get("isValid")
            if not (valid if is_lax else valid is True):
                reason = str(said.get("invalidReason"))
                if reason == "permit2_allowance_required" and not self.has("402 without allowance"):
                    return replace(self.refuse(order, reason), status=412)
                failed = {"success": False, "errorReason": reason, "transaction": ""}
                return self.refuse(order, reason, failed if self.has("says failed") else None)
        is_told = self.has("charges failures and says so")
        is_broken_off = self.has("breaks off") and "fail" in query
        charges = is_told or is_broken_off or self.has("charges failures")
        if "fail" in query and not charges:
            return Reply(500, {"error": "failed"})
        if "slow" in query and not charges:
            await asyncio.sleep(SLOW_S)
        pieces = PIECES if path == "/stream" else 1
        where = {"Location": "/free?page=1"} if "moved" in query else {}
        status = 303 if where else 200
        if where and self.has("redirects are free"):
            return Reply(303, None, where)
        if self.has("serves before settling"):
            self.owed[order.authorization["nonce"]] = asyncio.create_task(
                self.post_quietly("/settle", asked)
            )
            return Reply(200, self.content(order))
        if path == "/stream" and self.has("settles after the stream"):
            content = self.content(order)
            return Reply(200, content, {}, pieces, lambda: self.post_quietly("/settle", asked))
        if wanted.get("scheme") == "upto":
            used, most = self.used(order, wanted), int(wanted["amount"])
            if used > most and not self.has("bounds nothing"):
                return Reply(500, {"error": "used more than was signed"})
            if self.has("never settles"):
                return Reply(200, self.content(order))
            used = most if self.has("settles the maximum") else used
            asked["paymentRequirements"] = {**wanted, "amount": str(used)}
        try:
            said = await self.post("/settle", asked)
        except Unknown:
            if self.has("open when settle fails"):
                return Reply(200, self.content(order))
            if self.has("unknown is refused"):
                result = {"success": False, "errorReason": "unexpected", "transaction": ""}
                return self.refuse(order, "settlement failed", result)
            return Reply(503, {"error": "not known yet"}, {"Retry-After": "1"})
        success = said.get("success")
        if self.has("believes the chain alone") and not await self.has_moved(order):
            return Reply(503, {"error": "not on the chain yet"}, {"Retry-After": "1"})
        if "slow" in query and charges:
            await asyncio.sleep(SLOW_S)
        if is_broken_off and success is True:
            return Reply(200, self.content(order), {}, PIECES, break_off)
        if "fail" in query and success is True:  # it is settled before it works
            told = {order.receipt_name: encoded(said)} if is_told else {}
            return Reply(500, {"error": "failed"}, told)
        if success if is_lax else success is True:
            receipt = {**said}
            if self.has("tells no amount"):
                receipt.pop("amount")
            if self.has("no hash"):
                receipt["transaction"] = ""
            if not (where and self.has("redirects without a receipt")):
                where = where | {order.receipt_name: encoded(receipt)}
            content = None if status == 303 else self.content(order)
            return Reply(status, content, where, pieces)
        if said.get("errorReason") == "settlement_pending" and not self.has("unknown is refused"):
            return Reply(503, {"error": "pending"}, {"Retry-After": "1"})
        if self.has("served although refused"):
            return Reply(200, self.content(order))
        return self.refuse(order, str(said.get("errorReason")), said)

    def refuse(self, order: Order, error: str, result: Any = None) -> Reply:
        return self.ask(order.path, error, result, order.version)

    async def careless(self, order: Order) -> Reply:
        """Sell, unless it keeps the wrong thing in mind."""
        if order.payment is None:
            return await self.paid(order)
        auth, path = order.authorization, order.path
        nonce, kept = auth["nonce"].lower(), self.minded
        keys = {
            "claims nonces as they are written": auth["nonce"],
            "claims by request": f"{nonce} {path}?{order.query}",
        }
        if key := next((each for name, each in keys.items() if self.has(name)), ""):
            if key in kept:
                return self.ask(path, "this payment was used")
            kept[key] = "claimed"
            return await self.settled(order, self.requirements(order.version, path))
        if (
            self.has("one nonce for all payers")
            and kept.setdefault(nonce, auth["from"]) != auth["from"]
        ):
            return self.ask(path, "this nonce was used")
        if self.has("binds to the price alone"):
            first = kept.setdefault(nonce, path)
            if first != path and PRICES["GET", first] == PRICES.get(("GET", path)):
                return Reply(200, self.content(order))
        if (
            self.has("serves on the nonce of another")
            and kept.setdefault(nonce, auth["from"]) != auth["from"]
        ):
            return Reply(200, self.content(order))
        if self.has("keeps what was refused") and nonce in kept:
            return self.ask(path, "this payment was refused")
        if self.has("breaks at endless windows") and int(auth["validBefore"]) > 2**64:
            return Reply(500, {"error": "the time is too large"})
        reply = await self.paid(order)
        if self.has("keeps what was refused") and reply.status == 402:
            kept[nonce] = "refused"
        if self.has("one receipt for all") and reply.status == 200:
            kept["receipt"] = own = reply.headers
            for _ in range(100):  # until another answer has left its own
                if kept["receipt"] is own:
                    await asyncio.sleep(0.01)
            return Reply(200, reply.body, kept["receipt"])
        return reply

    async def has_moved(self, order: Order) -> bool:
        """Tell whether a transfer of the payer to the shop stands with the nonce on the chain."""
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [
            {"fromBlock": "0x0", "address": checksum(self.network.asset)}]}  # fmt: skip
        async with httpx.AsyncClient(trust_env=False, verify=False) as http:
            logs = (await http.post(self.rpc_url, json=call)).json()["result"]
        payer, nonce = (order.authorization[name].lower() for name in ("from", "nonce"))
        used = {
            log["transactionHash"] for log in logs if log["topics"][2:] == [nonce]
            and log["topics"][1].endswith(payer[2:])
        }  # fmt: skip
        ends = self.pay_to.lower()[2:]
        return any(
            log["transactionHash"] in used and log["topics"][2].endswith(ends) for log in logs
        )

    async def post_quietly(self, path: str, asked: Any) -> None:
        try:
            await self.post(path, asked)
        except Unknown:
            return

    async def post(self, path: str, asked: Any) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=ASK_S, verify=False) as http:
                got = await http.post(
                    self.facilitator + path, json=asked, follow_redirects=self.has("follows")
                )
                said = got.json()
        except (httpx.HTTPError, ValueError):
            raise Unknown from None
        if self.has("believes 200 alone") and got.status_code != 200:
            raise Unknown
        field_name = "isValid" if path == "/verify" else "success"
        is_lax = self.has("truthy")
        is_told = field_name in said if isinstance(said, dict) else False
        if not is_told or not (is_lax or isinstance(said[field_name], bool)):
            raise Unknown
        return said if isinstance(said, dict) else {}


def shop(given: "Given", defects: Any = (), habits: Any = (), kind: type[Shop] = Shop) -> Any:
    return kind(
        given.facilitator_url,
        given.pay_to,
        given.network,
        frozenset(defects),
        frozenset(habits),
        folder=given.state_dir,
        rpc_url=given.rpc_url,
    )


def of_environment(defects: Any, kind: type[Shop] = Shop) -> Any:
    """Return a shop as the judge starts it by a command."""
    told = os.environ
    to, pay_to, folder = (
        told[name] for name in ("FACILITATOR_URL", "X402SIM_PAY_TO", "X402SIM_STATE_DIR")
    )
    return kind(to, pay_to, BASE_SEPOLIA, frozenset(defects), folder=folder)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(of_environment(sys.argv[1:]), port=int(os.environ["PORT"]), log_level="warning")
