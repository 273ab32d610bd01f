"""Other spellings, methods and headers of a paid path: nothing is served without payment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from x402sim.protocol.x402 import to_base64
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.server.case import Demand, case, demand, uncounted
from x402sim.suite.server.observed import Try, UnpaidTries
from x402sim.suite.server.play import Headers, Item, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, Violation
from x402sim.text.words import counted, often

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "TRACE", "get")
DIGITS = 8
"""Bytes by which two goods may differ in length, through numbers in the text."""
OVERRIDES = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override")
REWRITES = ("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Forwarded-Path")


ONCE = {Dialect.V1: "without a payment there is no version: it is judged with version 2"}
BODIES = (
    "",
    "{",
    "{}",
    "[]",
    "null",
    "true",
    "0",
    '"paid"',
    '{"a":' * 500 + "1" + "}" * 500,
    '{"paid": true}',
    '{"__proto__": {"paid": true}}',
    "title=a",
    " " * 5000,
)


def spellings(item: Item) -> Mapping[str, str]:
    """Return other spellings of a target, by description."""
    path, query = item.path, item.target.removeprefix(item.path)
    head, _, last = path.rpartition("/")
    first = f"%{ord(last[0]):02x}{last[1:]}" if last else "%2f"
    found = {
        "a slash behind it": f"{path}/",
        "two slashes before it": f"/{path}",
        "two slashes within": f"{head}//{last}",
        "three slashes": f"//{path}",
        "its first letter encoded": f"{head}/{first}",
        "its first letter encoded twice": f"{head}/{first.replace('%', '%25')}",
        "an encoded slash": f"{head}/%2f{last}",
        "an encoded slash behind it": f"{path}%2f",
        "a backslash": f"{head}\\{last}",
        "an encoded backslash": f"{head}%5c{last}",
        "capitals": f"{head}/{last.upper()}",
        "a dot segment": f"{head}/./{last}",
        "two dots": f"{head}/free/../{last}",
        "encoded dots": f"{head}/free/%2e%2e/{last}",
        "encoded dots and slash": f"{head}/free%2f..%2f{last}",
        "a dot behind it": f"{path}.",
        "a dot segment behind it": f"{path}/.",
        "two dots and a semicolon": f"{head}/free/..;/{last}",
        "a format behind it": f"{path}.json",
        "a semicolon": f"{path};a=1",
        "an encoded zero": f"{path}%00",
        "an encoded blank": f"{path}%20",
        "a tab": f"{path}%09",
        "a fragment": f"{path}#paid",
        "an encoded question mark": f"{path}%3f",
        "a whole URL": f"http://127.0.0.1{path}",
        "a whole URL of another host": f"http://free.example{path}",
        "letters of full width": f"{head}/%ef%bd%97{last[1:]}",
    }
    spelled = {about: target + query for about, target in found.items()}
    return spelled | {"another query": f"{item.target}{'&' if query else '?'}paid=true"}


async def _tried(play: Play, requests: Sequence[tuple[str, str, str, Headers]]) -> UnpaidTries:
    """Send requests without payment, each with its description, method, target and headers."""
    goods = await play.goods()
    price = (await play.draft()).auth.value
    found = [
        Try(about, await play.ask(headers=headers, method=method, target=target, about=about))
        for about, method, target, headers in requests
    ]
    return UnpaidTries(tries=found, goods=goods, price=price)


def _is_its_length(observed: UnpaidTries) -> bool:
    """Tell whether a HEAD was answered with the length of the goods."""
    length = observed.tries[0].answer.headers.get("content-length", "")
    return length.isdecimal() and abs(int(length) - len(observed.goods.body)) <= DIGITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """A HEAD with a payment, a GET with the same payment, and the transfers at the HEAD."""

    head: Answer
    get: Answer
    moved: int
    price: int


def _nothing_served(what: str, so: str, key: str = "no-other-request-unpaid") -> Demand:
    """Return the demand that requests without a payment are served nothing."""

    def test(play: Play, observed: UnpaidTries) -> Found:
        got = [each for each in observed.tries if play.is_goods(each.answer, observed.goods)]
        if not got:
            return None
        names = "; ".join(each.about for each in got[:6])
        return Violation(
            demand=key,
            actual=f"{names}: {got[0].answer.summary}",
            loss=play.tokens(observed.price, "served for nothing, as often as anybody likes"),
        )

    ground = texts.derived(texts.NO_VALID_PAYMENT, texts.SIGNAL, so=so)
    return demand(f"{what}: nothing is served unpaid", ground)(test)


@demand(
    "HEAD without payment is no success",
    texts.ours(
        texts.NO_VALID_PAYMENT,
        because="HEAD runs the handler for nothing where only GET is guarded",
    ),
)
def _head_is_402(_: Play, answer: Answer) -> Found:
    if not answer.is_2xx:
        return None
    return Violation(demand="head-is-no-success", actual=answer.summary)


@demand(
    "An unpaid HEAD runs no handler, and tells no length of the goods",
    texts.derived(
        texts.NO_VALID_PAYMENT,
        texts.HEAD,
        so="a HEAD asks for the headers of the answer to a GET, and here a GET is paid for, as "
        "the package's guide sells one. No goods leave, but the work is done for nothing. A "
        "success with the length of the goods, or a goods' number that goes up by the HEAD, "
        "shows that the handler ran unpaid; a 402, 404 or 405 keeps the demand",
    ),
    level="SHOULD",
)
def _head_tells_nothing(play: Play, observed: UnpaidTries) -> Found:
    answer = observed.tries[0].answer
    length = answer.headers.get("content-length", "none")
    if not answer.is_2xx or play.item.method != "GET":
        return None
    if not _is_its_length(observed) and not observed.made:
        return None
    made = (
        "not counted: no number of it counts that"
        if observed.made is None
        else often(observed.made)
    )
    return Violation(
        demand="head-tells-nothing",
        actual=f"{answer.summary}; Content-Length: {length}, of the goods "
        f"{len(observed.goods.body)}; how often the handler ran for it, by a number in what is "
        f"sold: {made}",
    )


@demand(
    "HEAD with a payment: charged only if served",
    texts.ours(
        texts.INTENT,
        because="an answer without a body is no goods, and few payers know that a "
        "HEAD is charged as a GET is",
    ),
)
def _head_is_free(play: Play, observed: Charged) -> Found:
    if not observed.moved or play.item.method != "GET" or observed.get.is_2xx:
        return None
    return Violation(
        demand="head-takes-no-payment",
        actual=f"HEAD: {observed.head.how}; {counted(observed.moved, 'transfer')}; "
        f"GET: {observed.get.how}",
        loss=play.tokens(observed.price, "charged for an answer without a body"),
    )


@case(
    "path/body",
    _nothing_served(
        "Other bodies of a paid request",
        "another body of the request does not attach a payment",
        "no-other-body-unpaid",
    ),
    absent=ONCE,
)
async def _bodies(play: Play) -> UnpaidTries:
    item = play.sold(lambda each: each.body, "body")
    goods, price = await play.goods(item), (await play.draft(item)).auth.value
    tries = [
        Try(f"the body {body[:40]!r}", await play.ask(replace(item, body=body))) for body in BODIES
    ]
    return UnpaidTries(tries=tries, goods=goods, price=price)


@case(
    "path/spelling",
    _nothing_served(
        "Other spellings of a paid path",
        "another spelling of the request does not attach a payment",
    ),
)
async def _spelled(play: Play) -> UnpaidTries:
    method = play.item.method
    return await _tried(
        play, [(about, method, to, ()) for about, to in spellings(play.item).items()]
    )


@case(
    "path/method",
    _nothing_served("Other methods of a paid path", "another method does not attach a payment"),
)
async def _methods(play: Play) -> UnpaidTries:
    return await _tried(play, [(each, each, play.item.target, ()) for each in METHODS])


@case(
    "path/headers",
    _nothing_served(
        "Headers with another method or path",
        "a header that names a request does not attach a payment",
    ),
)
async def _overridden(play: Play) -> UnpaidTries:
    item, goods = play.item, await play.goods()
    # a page of everybody's that has the fields of the goods would tell nothing
    others = [to for to in ("/", "/free") if not play.is_goods(await play.ask(target=to), goods)]
    found: list[tuple[str, str, str, Headers]] = [
        (f"{method} with {name}: {item.method}", method, item.target, [(name, item.method)])
        for name in OVERRIDES
        for method in ("POST", "GET", "OPTIONS", "PUT")
        if method != item.method
    ]
    found += [
        (f"/ with {name}: {item.target}", item.method, to, [(name, item.target)])
        for name in REWRITES
        for to in others
    ]
    found += [
        (f"{name}: {text}", item.method, item.target, [(name, text)])
        for name, text in (
            ("X-Forwarded-Prefix", "/free"),
            ("Host", "localhost"),
            ("X-Forwarded-For", "127.0.0.1"),
            ("X-Real-IP", "127.0.0.1"),
            ("Authorization", "Bearer paid"),
            ("Accept", "text/html"),
            ("Sec-Fetch-Mode", "cors"),
            ("Purpose", "prefetch"),
            ("Range", "bytes=0-"),
            ("Upgrade", "websocket"),
            ("Cookie", "paid=true"),
            ("X-Payment-Verified", "true"),
            ("PAYMENT-RESPONSE", to_base64({"success": True, "transaction": "0x" + "ab" * 32})),
            ("X-Middleware-Subrequest", "middleware:middleware:middleware:middleware:middleware"),
        )
    ]
    return await _tried(play, found)


@case("path/head-success", _head_is_402)
async def _asked_by_head(play: Play) -> Answer:
    return await play.ask(method="HEAD")


@case("path/head", _head_tells_nothing)
async def _head(play: Play) -> UnpaidTries:
    """Ask by HEAD without a payment. If that is a success, buy several times, with a HEAD between
    the last two purchases: a number in the goods that goes up by two shows a run for the HEAD.
    """
    observed = await _tried(play, [("HEAD", "HEAD", play.item.target, ())])
    if not observed.tries[0].answer.is_2xx:
        return observed
    made = await play.times_made(lambda: play.ask(method="HEAD"))
    if made is None and not _is_its_length(observed):
        raise uncounted()
    return replace(observed, made=made)


@case("path/head-paid", _head_is_free)
async def _head_paid(play: Play) -> Charged:
    payment = await play.draft()
    head = await play.pay(payment, method="HEAD")
    moved = len(await play.moved())
    get = await play.pay(payment)
    return Charged(head=head, get=get, moved=moved, price=payment.auth.value)
