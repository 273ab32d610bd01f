"""The live page of a world, at /_sim/ui: routes, event stream, and the work of the buttons.

The page gets server-sent events: the journal, the requests of a server, marks of served payments,
and the payments of the database. Buttons pay and play scenarios. Static files need no token; all
else needs the control token, if any.
"""

import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import partial
from itertools import takewhile
from shlex import quote as quoted
from typing import Annotated, Any, get_args
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Meta
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from x402sim.clock import Clock
from x402sim.http import page as text_page, web
from x402sim.http.limits import MAX_EXCHANGES, MAX_EXCHANGES_BYTES
from x402sim.http.web import Refused, bad_body
from x402sim.journal import Entry, Journal, line
from x402sim.payer import mistakes
from x402sim.payer.auth import MAX_AMOUNT, PaymentAuth
from x402sim.payer.core import PaymentFailed
from x402sim.payer.flow import FlowAuth
from x402sim.payer.session import SessionAuth
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum, from_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import Wire, encode
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import NETWORKS
from x402sim.protocol.routes import MARKET, ORDER, PAY, QUOTE
from x402sim.report.page import FILES, alone, read, tables
from x402sim.serving.control.actions import failing, failing_accounts, named, require_service
from x402sim.serving.requests import Headers, LoggedRequest, Requests
from x402sim.text.program import start
from x402sim.text.words import unknown
from x402sim.version import VERSION
from x402sim.world.faults import DELAYS, DOES, Callers
from x402sim.world.running_world import ACTORS, RunningWorld
from x402sim.world.scenario import shipped, shipped_names

MOST = 2000


@dataclass(frozen=True, slots=True)
class Stored:
    """Payments of a database as JSON, oldest first; `older` is how many are left out."""

    lines: Sequence[bytes] = ()
    older: int = 0


NOTHING = Stored()


def stored(world: RunningWorld) -> Stored:
    """Return the newest payments of a world's file; nothing if it has none.

    Each line has the record of the id, the session, and whether the payment was served. The
    database knows of the service only for payments in one step, or if the reputation counts it.
    """
    if world.options.file is None:
        return NOTHING
    store, lines = world.service.store, []
    newest, count = store.payments.newest(MOST), store.payments.count()
    for each in newest:
        budget = store.sessions.paid_by(each.payment_id)
        session = budget and {
            "session_id": budget.session_id,
            "payer": budget.payer,
            "deposited_base": str(budget.deposited),
            "released": str(budget.released),
            "refunded": str(budget.refunded),
            "status": "open" if budget.state == "active" else budget.state,
            "expires_ms": budget.expires_ms,
        }
        line = {
            "at_ms": each.timestamp,
            "payment_id": each.payment_id,
            "authorization": each.nonce.hex() if each.nonce else None,
            "payer": checksum(each.payer) if each.payer else each.from_address,
            "tx_hash": each.tx_hash,
            "amount_base": each.amount,
            "resource": each.resource_url,
            "status": each.status,
            "block": each.block_number,
            "served": store.served.is_marked(each.payment_id),
            "session": session,
        }
        lines.append(msgspec.json.encode(line))
    return Stored(lines, count - len(lines))


SHOWN = ("/api/", "/facilitator")
"""The prefixes of the paths of all shown requests but those of 402s and payments."""
MAX_BODY = 16 * 1024
MAX_EXCHANGE = 64 * 1024
"""The bytes of a request and its answer as JSON; of a longer one the headers are left out."""
MOST_SERVED = 20_000
"""The marks of served payments: more than the payments that a journal of limited length has."""
MAX_ID = 256
"""Longer than every served payment id."""
BATCH = 2000
"""The entries of one message to a reader."""
PAUSE_S = 0.2
BEAT_S = 15.0
"""Seconds until a silent stream sends a comment, so that no proxy closes the stream."""
_SAFE = "/:@!$&'()*+,;=~"  # the characters that a path keeps unescaped
_DOTS = re.compile(r"(?<=/)\.{1,2}(?=/|$)")
"""Dot segments of a path, which a client would remove before the sending."""
_SECRET = (b"authorization", b"proxy-authorization", b"cookie", b"set-cookie")


class PageFeed:
    """Streams a journal, and the requests of a server, to the readers of its page.

    `stored` are the payments that the database had when the server started.
    """

    def __init__(
        self, journal: Journal, requests: Requests | None = None, stored: Stored = NOTHING
    ) -> None:
        self._journal, self._requests, self._stored = journal, requests, stored
        if requests:
            requests.subscribe_to_payments(self._add_request)
        self._real = Clock()
        self._started_ms = self._real.now_ms()
        self._readers: set[asyncio.Event] = set()
        self._requests_kept: deque[tuple[int, LoggedRequest]] = deque()
        self._served: dict[str, tuple[int, bytes]] = {}
        self._forgotten = -1
        self._count = self._size = self._dropped = 0
        self._is_stopped = False

    def stop(self) -> None:
        """End all streams, so that the server can stop."""
        self._is_stopped = True
        self._wake()

    def _add_request(self, request: LoggedRequest) -> None:
        is_of_payment = request.status == 402 or request.proofs
        if request.is_whole and (is_of_payment or request.path.startswith(SHOWN)):
            self._count += 1
            self._mark_served(request)
            self._requests_kept.append((self._count, request))
            self._size += request.size
            while len(self._requests_kept) > MAX_EXCHANGES or self._size > MAX_EXCHANGES_BYTES:
                _, oldest = self._requests_kept.popleft()
                self._dropped += 1
                self._size -= oldest.size
            if self._readers:
                self._wake()

    def _mark_served(self, request: LoggedRequest) -> None:
        """Note that a payment was served, if a request with its id was answered 2xx."""
        if request.path == PAY or request.status is None or not 200 <= request.status < 300:
            return
        shown = (*request.proofs, *request.answer_headers)  # in one step the answer names it
        payment_id = next((each for name, each in shown if name.lower() == b"x-payment-id"), None)
        if payment_id is None or len(payment_id) > MAX_ID:
            return
        if (key := payment_id.decode("latin-1")) in self._served:
            return
        seq, at_ms = max(request.entries, default=0), int(request.at_s * 1000)
        mark = {"seq": seq, "at_ms": at_ms, "payment_id": key, "path": request.path}
        self._served[key] = self._count, msgspec.json.encode(mark)
        if len(self._served) > MOST_SERVED:
            _, oldest = self._served.pop(next(iter(self._served)))
            self._forgotten = msgspec.json.decode(oldest)["seq"]

    # --- the readers -----------------------------------------------------------------

    def hello(self) -> dict[str, Any]:
        """Return the first message to a page.

        If `started` has changed, the server was restarted, and the numbers begin anew. Entries
        before `first`, and as many requests as were `dropped`, are no longer kept; `older` payments
        of the database are not sent. Marks of served payments are complete after the entry
        `forgotten`; it is None if no requests are recorded.
        """
        return {
            "started": self._started_ms,
            "length": self._journal.length,
            "first": self._journal.length - len(self._journal),
            "older": self._stored.older,
            "dropped": self._dropped,
            "forgotten": self._forgotten if self._requests else None,
        }

    async def stream(self, since: int, after: int) -> AsyncIterator[bytes]:
        """Yield server-sent events: the journal from entry `since` on, exchanges after a number.

        The first is `hello`; then come the payments of the database, unless they were sent.
        """
        wake, waiting = asyncio.Event(), list[Entry]()
        if not self._readers:
            self._journal.listeners.append(self._wake)
        self._readers.add(wake)
        if self._requests:
            self._requests.readers += 1
        try:
            yield _event(b"hello", [msgspec.json.encode(self.hello())])
            if self._stored.lines and not since:
                yield _event(b"stored", self._stored.lines)
            while not self._is_stopped:
                wake.clear()
                waiting = waiting or self._journal.since(since)
                entries, waiting = waiting[:BATCH], waiting[BATCH:]
                # taken together, before any `yield`: more requests may end while a message is sent
                exchanges = (
                    [] if waiting else [each for each in self._requests_kept if each[0] > after]
                )
                served = [] if waiting else self._served_after(after)
                after = after if waiting else self._count
                if entries:
                    since = entries[-1].seq + 1
                    yield _event(b"journal", map(line, entries))
                if exchanges:
                    yield _event(b"exchanges", (_exchange(*each) for each in exchanges))
                if served:
                    yield _event(b"served", served)
                if entries or exchanges or served:
                    await self._real.sleep(0 if waiting else PAUSE_S)
                    continue
                try:
                    async with asyncio.timeout(BEAT_S):
                        await wake.wait()
                except TimeoutError:
                    yield b": nothing new\n\n"
        finally:
            self._readers.discard(wake)
            if self._requests:
                self._requests.readers -= 1
            if not self._readers:
                self._journal.listeners.remove(self._wake)

    def messages(self) -> list[tuple[str, Iterable[bytes]]]:
        """Return what a reader would get now: the names of messages, and their lines."""
        return [
            ("hello", [msgspec.json.encode(self.hello())]),
            ("stored", self._stored.lines),
            ("journal", map(line, self._journal)),
            ("exchanges", (_exchange(*each) for each in self._requests_kept)),
            ("served", self._served_after(0)),
        ]

    def _served_after(self, number: int) -> list[bytes]:
        """Return the marks made by requests after a number, oldest first."""
        newer = takewhile(lambda mark: mark[0] > number, reversed(self._served.values()))
        return [text for _, text in newer][::-1]

    def _wake(self, _: Entry | None = None) -> None:
        for wake in self._readers:
            wake.set()


def _exchange(number: int, request: LoggedRequest) -> bytes:
    exchange = exchange_of(number, request)
    text = msgspec.json.encode(exchange)
    if len(text) > MAX_EXCHANGE:
        for half in (exchange["sent"], exchange["answered"]):
            half["headers"], half["cut"] = [("(headers)", "too long")], True
        text = msgspec.json.encode(exchange)
    return text


def exchange_of(number: int, request: LoggedRequest) -> dict[str, Any]:
    """Return a request and the answer in the page's form.

    Without a `status` the connection was broken. `seen` are the numbers of the journal's entries
    that it caused. `target` is the path, escaped for another sending. A `cut` body is only the
    beginning.
    """
    query = f"?{request.query.decode('latin-1')}" if request.query else ""
    return {
        "n": number,
        "at_ms": int(request.at_s * 1000),
        "ms": int((request.ended - request.began) * 1000),
        "client": request.client,
        "method": request.method,
        "path": request.path + query,
        "target": _DOTS.sub(lambda dots: "%2E" * len(dots[0]), quote(request.path, safe=_SAFE))
        + query,
        "status": request.status,
        "sent": _as_text(request.headers, request.sent),
        "answered": _as_text(request.answer_headers, request.answered),
        "seen": request.entries,
    }


def _event(name: bytes, lines: Iterable[bytes]) -> bytes:
    return b"event: " + name + b"\n" + b"".join(b"data: " + each + b"\n" for each in lines) + b"\n"


def _as_text(headers: Headers, body: bytes) -> dict[str, Any]:
    """Return a request or an answer: the headers, and the beginning of the body as text.

    A body other than UTF-8 is there in base64, too.
    """
    texts = [
        (name.decode("latin-1"), "***" if name.lower() in _SECRET else value.decode("latin-1"))
        for name, value in headers
    ]
    half: dict[str, Any] = {"headers": texts, "cut": len(body) > MAX_BODY}
    kept = body[:MAX_BODY]
    half["body"] = kept.decode("utf-8", "replace")
    if half["body"].encode() != kept:
        half["base64"] = b64encode(kept).decode()
    return half


# --- the page ---------------------------------------------------------------------------

DEADLINE_S = 20.0
_PLENTY = "1000000.00"


class Sold(Wire, frozen=True):
    """A good as the pages list it, for a price in tokens; `path` fits the path of `name`."""

    name: str
    method: str
    path: str
    price: str
    about: str
    has_holes: bool = False
    body: dict[str, Any] | None = None


def goods(world: RunningWorld) -> list[Sold]:
    """Return what a world sells by request: the user's goods, or a quote and the market.

    Goods sold `upto` are not among them: the page signs no message of Permit2.
    """
    if not world.options.has_service:
        return []
    env, about = world.service.env, world.service.issuer.description

    def price(amount_base: int) -> str:
        return to_decimal(amount_base, env.network.decimals)

    own = [
        Sold(it.name, it.method or "GET", it.sample, price(base), it.description, not it.is_exact)
        for it, base in env.shop.priced
    ]
    usual = price(env.quote_price_base)
    if own or env.shop.by_permit2:
        return own
    return [
        Sold(f"POST {QUOTE}", "POST", QUOTE, usual, about(QUOTE), body=ORDER),
        Sold(f"GET {MARKET}", "GET", MARKET, usual, about(MARKET)),
    ]


class Pay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A payment ordered by the page: the account, or how it fails; the good's name, by default the
    first, and a path that fits; whether of a session; the mistake.
    """

    account: Annotated[int, Meta(ge=0)] = 0
    fails: str = ""
    buys: str = ""
    path: Annotated[str, Meta(pattern="^(/|$)")] = ""
    session: bool = False
    wrong: str = ""


class PageAnswer(Wire, frozen=True):
    """The outcome of a payment: the last answer's status and text, or None and why there is none.

    `payment` finds its lane: the payment id, or the nonce of its authorization in hex; None if
    nothing was signed.
    """

    status: int | None
    said: str
    payment: str | None


async def pay(world: RunningWorld, wanted: Pay, url: str) -> PageAnswer:
    """Pay the service at this URL over TCP, as any payer does; raises `Refused`."""
    require_service(world, "/ui/pay")
    for_sale = {each.name: each for each in goods(world)}
    if wanted.account >= len(world.accounts.funded):
        raise bad_body(f"account: there are {len(world.accounts.funded)}, counted from 0")
    if wanted.wrong and wanted.wrong not in mistakes.MISTAKES:
        raise bad_body(unknown("mistake", wanted.wrong, mistakes.MISTAKES))
    if wanted.wrong and wanted.session:
        raise bad_body("a mistake is made without a session")
    if (name := wanted.buys or next(iter(for_sale), "")) not in for_sale:
        raise bad_body(unknown("good", name, for_sale))
    good, network, clock = for_sale[name], world.service.env.network, world.clock
    wallet, used = world.accounts.funded[wanted.account], list[Authorization]()
    nonce = None
    if wanted.fails:
        made = {each.fails: each for each in await failing_accounts(world)}
        if (account := made.get(wanted.fails)) is None:
            raise bad_body(unknown("account that fails", wanted.fails, made))
        wallet = Wallet(account.private_key)
        nonce = from_hex(account.nonce, 32) if account.nonce else None
    payments = list[str]()

    def draft(request: httpx.Request) -> mistakes.Draft:
        return mistakes.draft_of(request, wallet, network, clock.now_s())

    def on_request(request: httpx.Request) -> None:
        if mistakes.paid_in(request):
            sent = draft(request)
            payments.append(sent.payment_id or sent.auth.nonce.hex())

    def on_answer(request: httpx.Request, _: httpx.Response) -> None:
        if mistakes.paid_in(request) and not used:
            used.append(draft(request).auth)

    def changed(request: httpx.Request) -> httpx.Request:
        right = draft(request)
        right = right.signing(nonce=nonce) if nonce else right
        if wanted.wrong:
            repeated = replace(right, auth=(*used, right.auth)[0])
            right = mistakes.MISTAKES[wanted.wrong].change(repeated)
        return mistakes.request_of(right, request)

    async def buy(change: mistakes.Change | None) -> httpx.Response:
        here: dict[str, Any] = {"network": network, "clock": clock, "deadline_s": DEADLINE_S}
        payer: FlowAuth = PaymentAuth(wallet, max_amount=_PLENTY, max_total=_PLENTY, **here)
        if wanted.session:
            deposit = (Decimal(good.price) * 10).quantize(Decimal("0.01"), ROUND_CEILING)
            payer = SessionAuth(wallet, deposit=str(deposit), **here)
        flow = mistakes.ObservedAuth(
            choose=lambda _: payer,
            on_request=on_request,
            on_answer=on_answer,
            limits=payer.limits,
            change=change,
        )
        return await http.request(good.method, wanted.path or good.path, json=good.body, auth=flow)

    # the server is this process; no authority has signed the certificate
    client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=DEADLINE_S, verify=False)  # noqa: S501
    async with client as http:
        try:
            if wanted.wrong == "replay":
                await buy(None)
            answer = await buy(changed if wanted.wrong or wanted.fails else None)
        except (PaymentFailed, httpx.HTTPError) as failed:
            return PageAnswer(None, str(failed) or repr(failed), next(reversed(payments), None))
    return PageAnswer(answer.status_code, answer.text[:1000], next(reversed(payments), None))


LONGEST_S = 300


class Play(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scenario to play."""

    scenario: str


def playable(world: RunningWorld) -> list[dict[str, Any]]:
    """Return the shipped scenarios: name, title, description, and unmet needs."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "story": each.description,
            "takesTime": "clock" in each.needs,
            "lacks": [need.meaning for need in each.needs if need not in world.capabilities],
        }
        for each in shipped()
    ]


async def play(wanted: Play, url: str) -> dict[str, Any]:
    """Play a scenario at this URL, in a new process; return the report of `run --json`.

    Raises `Refused`.
    """
    if wanted.scenario not in (known := shipped_names()):
        raise bad_body(unknown("scenario", wanted.scenario, known))
    command = (*start(), "run", wanted.scenario, "--on", url, "--json")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    try:
        async with asyncio.timeout(LONGEST_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise Refused(504, "Too slow", f"it took longer than {LONGEST_S} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    report = msgspec.json.decode(printed)
    (played,) = report["scenarios"]
    return {**played, "clockAheadSeconds": report["clock_ahead_s"]}


_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
PATH = "/_sim/ui"
"""Where the page is."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class _Position(msgspec.Struct, frozen=True):
    """The position of a reader: the next entry of the journal, and the newest exchange."""

    since: Annotated[int, Meta(ge=0)] = 0
    after: Annotated[int, Meta(ge=0)] = 0


def page_of(world: RunningWorld, feed: PageFeed, allow: Callable[[Request], None]) -> list[Route]:
    """Return the routes of a world's page, below /_sim; `allow` raises `Refused`."""

    async def paid(request: Request) -> Response:
        allow(request)
        wanted = web.parse(await web.read_body(request) or b"{}", Pay)
        return web.answer(await pay(world, wanted, _here(request)))

    async def played(request: Request) -> Response:
        allow(request)
        if request.method == "GET":
            return web.answer(playable(world))
        wanted = web.parse(await web.read_body(request), Play)
        return web.answer(await play(wanted, _here(request)))

    async def saved(request: Request) -> Response:
        allow(request)
        words = of_world(world) | {"live": False, "page": str(request.base_url.replace(path=PATH))}
        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="payments.html"'}
        return Response(alone(words, feed.messages()), media_type="text/html", headers=headers)

    routes = routes_of(feed, lambda: of_world(world), allow)
    return [
        *routes,
        Route("/ui/pay", paid, methods=["POST"]),
        Route("/ui/play", played, methods=["GET", "POST"]),
        Route("/ui/saved", saved),
    ]


def _here(request: Request) -> str:
    (host, port), scheme = request.scope["server"], request.url.scheme
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def routes_of(
    feed: PageFeed, words: Callable[[], dict[str, Any]], allow: Callable[[Request], None]
) -> list[Route]:
    """Return the routes of every page: files, words, and the events of `feed`."""

    async def words_of_page(request: Request) -> Response:
        allow(request)
        return web.answer(words())

    async def stream(request: Request) -> Response:
        allow(request)
        position: _Position = web.parse_query(request, _Position)
        events = feed.stream(position.since, position.after)
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)

    return [
        Route("/ui", partial(_file, "index.html")),
        Route("/ui/words", words_of_page),
        Route("/ui/events", stream),
        *(Route(f"/ui/{name}", partial(_file, name)) for name in FILES),
    ]


def journal_page(
    words: Callable[[], dict[str, Any]], feed: PageFeed, more: Sequence[Route] = ()
) -> Starlette:
    """Return the application of a page without controls, of a run or of a watched deployment, with
    `more` routes below /_sim.
    """
    routes = [*routes_of(feed, words, lambda _: None), *more]
    return web.Application([Route("/", _to_page), Mount("/_sim", routes=routes)])


def one_page(page: str) -> Starlette:
    """Return the application of one complete HTML file, such as a part of a run."""
    headers = HEADERS | {"Content-Security-Policy": "frame-ancestors 'none'"}  # it has its own

    async def shown(_: Request) -> Response:
        return Response(page, media_type="text/html", headers=headers)

    return web.Application([Route("/", _to_page), Route(PATH, shown)])


async def _to_page(_: Request) -> Response:
    return RedirectResponse(PATH)


def home(world: RunningWorld) -> Route:
    """Return the route of / for browsers: what runs here, how to pay, and where the rest is."""
    links = {"Payments, live": PATH, "Accounts": "/_sim/accounts", "Control API": "/_sim"}
    if world.options.has_service:
        links |= {"API": "/docs", "OpenAPI": "/openapi.json", "Discovery": "/.well-known/x402"}
        links |= {"Guide": "/docs/guide/index.md"}

    async def shown(request: Request) -> Response:
        return text_page.answer(request, _home(world, _here(request)), links)

    return Route("/", shown)


def _home(world: RunningWorld, url: str) -> str:
    lines, for_sale = ["# x402sim runs here", ""], goods(world)
    sold = world.service.env.shop.sold if world.options.has_service else []
    metered = [each.good for each in sold if each.good.upto]
    if for_sale or metered:
        lines += ["| for sale | price |", "| --- | --- |"]
        symbol = world.network.token_symbol
        lines += [
            f"| `{each.name}` | at most {each.price} {symbol}, by Permit2 |" for each in metered
        ]
    if for_sale:
        for each in for_sale:
            about = f"`{each.name}` {' '.join(each.about.split())}".replace("|", "\\|")
            lines.append(f"| {about} | {each.price} {world.network.token_symbol} |")
        first = min(for_sale, key=lambda each: Decimal(each.price))
        most = "" if Decimal(first.price) <= Decimal(MAX_AMOUNT) else f" --max {first.price}"
        method = "" if first.method == "GET" else f" -X {first.method}"
        body = f" -d {quoted(encode(first.body).decode())}" if first.body else ""
        pays = f"x402sim pay {quoted(url + first.path)}{method}{body}{most} --world {url}"
        lines += ["", "Pay, with account 0:", "", "```sh", pays, "```", ""]
        lines += ["The same goods are tools of MCP at `/mcp`.", ""]
    lines += [f"The facilitator for a shop of yours is `{url}/facilitator`.", ""]
    lines += ["| network | chain | token | JSON-RPC |", "| --- | --- | --- | --- |"]
    for network in (each.network for each in world.networks):
        token, rpc = f"{network.token_symbol}, `{checksum(network.asset)}`", f"/rpc/{network.name}"
        lines.append(f"| {network.name} | {network.chain_id} | {token} | `{url}{rpc}` |")
    return "\n".join(lines) + "\n"


async def _file(name: str, _: Request) -> Response:
    return Response(read(name), media_type=_TYPES[name.rpartition(".")[2]], headers=HEADERS)


def of_world(world: RunningWorld) -> dict[str, Any]:
    """Return the words of the page for a running world: names, units, faults, mistakes."""
    network = world.service.env.network
    return tables() | {
        "live": True,
        "version": VERSION,
        "title": network.name,
        "service": world.options.has_service,
        "symbol": network.token_symbol,
        "decimals": network.decimals,
        "names": named(world),
        "victims": world.faults.paths,
        "actors": ACTORS,
        "faults": DOES,
        "delays": DELAYS,
        "callers": get_args(Callers),
        "mistakes": {each.name: each.does for each in mistakes.MISTAKES.values()},
        "goods": msgspec.to_builtins(goods(world)),
        "own": bool(world.service.env.shop),
        "network": network.name if network.is_test and network.name in NETWORKS else "",
        "failing": failing(world) if world.chain.controls else {},
    }
