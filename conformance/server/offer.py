"""The offer: a 402 of each version, the same in both, and readable by browsers."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from x402sim.protocol import x402
from x402sim.protocol.networks import NETWORKS
from x402sim.protocol.permit2_payments import SPONSORED_PERMIT
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.server.case import Demand, case, demand
from x402sim.suite.server.observed import Trade
from x402sim.suite.server.payment import offers_in, payable, payables, required_in
from x402sim.suite.server.play import Headers, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, NotApplicable, Violation

_DIGITS = re.compile("0|[1-9][0-9]*")
_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")
_CAIP = re.compile("[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}")
PAGE = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
ORIGIN = ("Origin", "https://app.example")
OUTSIDE = "paid.example"
PROXY = [
    ("Host", OUTSIDE),
    ("X-Forwarded-Host", OUTSIDE),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Port", "443"),
    ("X-Forwarded-For", "203.0.113.7"),
]
"""The headers of a proxy that ends TLS."""
CANNOT = "an agent that asks as browsers do cannot pay"


HTTP = (Dialect.V1, Dialect.V2)
"""The versions that one answer of HTTP may offer."""


def _wrong_in(dialect: Dialect, offer: dict[str, Any]) -> str:
    """Return the first mistake of an offer; "" without a mistake."""
    texts_wanted = ["scheme", "network", dialect.amount, "asset", "payTo"]
    if dialect is Dialect.V1:
        texts_wanted += ["resource", "description"]
    for name in texts_wanted:
        if not isinstance(offer.get(name), str):
            return f"{name} is {offer.get(name)!r}, and no text"
    timeout = offer.get("maxTimeoutSeconds")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        return f"maxTimeoutSeconds is {timeout!r}, and no number above 0"
    if not _DIGITS.fullmatch(offer[dialect.amount]):
        return f"{dialect.amount} is {offer[dialect.amount]!r}, and no amount in atomic units"
    if dialect.version == 2 and not _CAIP.fullmatch(offer["network"]):
        return f"network is {offer['network']!r}, and no CAIP-2 name"
    is_evm = offer["network"].startswith("eip155:") or offer["network"] in NETWORKS
    if offer["scheme"] == x402.SCHEME and is_evm and not _ADDRESS.fullmatch(offer["asset"]):
        return f"asset is {offer['asset']!r}, and no address"
    return ""


@demand(
    "The offer has every required field, of the right type",
    texts.explicit(texts.SIGNAL, texts.REQUIRED, texts.FIELDS, texts.FIELDS_V1, texts.RESOURCE),
)
def _is_whole(play: Play, answer: Answer) -> Found:
    required = play.required(answer)
    wrong = next(
        filter(None, (_wrong_in(play.dialect, each) for each in offers_in(play.dialect, answer))),
        "",
    )
    if not wrong and not required.get("accepts"):
        wrong = "accepts is empty"
    if not wrong and play.dialect.version == 2:
        resource = required.get("resource")
        url = resource.get("url") if isinstance(resource, dict) else None
        if not (isinstance(url, str) and url):
            wrong = f"resource.url is {url!r}"
    if not wrong and answer.status != 402:
        wrong = f"its status is {answer.status}"
    if not wrong:
        return None
    return Violation(demand="whole-offer", actual=f"{wrong}; {answer.how}")


@demand(
    "The 402 gives the reason in words",
    texts.ours(texts.EXPLAINS, because="a payer can act on a reason only"),
    suffix="reason",
)
def _says_why(play: Play, answer: Answer) -> Found:
    required = play.required(answer)
    if isinstance(required.get("error"), str) and required["error"]:
        return None
    return Violation(demand="offer-says-why", actual=answer.how)


def _same(play: Play, answer: Answer) -> Found:
    found = [payable(each, answer, play.room.network) for each in HTTP]
    if None in found or required_in(Dialect.V1, answer) is None:
        return None
    said = [
        (each[dialect.amount], each["payTo"].lower(), each["asset"].lower())
        for dialect, each in zip(HTTP, found, strict=True)
        if each is not None
    ]
    if said[0] == said[1]:
        return None
    return Violation(
        demand="versions-offer-the-same",
        actual=f"version 1: {', '.join(said[0])}; version 2: {', '.join(said[1])}",
    )


@demand(
    "The body offers nothing beyond PAYMENT-REQUIRED",
    texts.derived(
        texts.ACCEPTS,
        texts.REQUIRED_AMOUNT,
        so="a request has one list of offers. If an offer stands in the header only, "
        "or in the body only, header or body is wrong",
    ),
    suffix="same",
    absent={Dialect.V1: "its offer is the body", Dialect.MCP: "server/tool/offer-both demands it"},
)
def _same_in_body(play: Play, answer: Answer) -> Found:
    """Find an offer of the body that the header lacks; for version 1, `_same` looks."""
    body = answer.json if isinstance(answer.json, dict) else {}
    offers = None if body.get("x402Version") == 1 else body.get("accepts")
    written = (
        [each for each in offers if isinstance(each, dict)] if isinstance(offers, list) else []
    )
    names = ("scheme", "network", "amount", "asset", "payTo")
    said, meant = (
        [tuple(str(each.get(name)).lower() for name in names) for each in of]
        for of in (
            [each for each in written if "amount" in each and "payTo" in each],
            offers_in(play.dialect, answer),
        )
    )
    if other := [each for each in said if each not in meant]:
        return Violation(
            demand="body-offers-the-same",
            actual=f"the body: {', '.join(other[0])}; PAYMENT-REQUIRED: "
            f"{'; '.join(', '.join(each) for each in meant[:3])}",
        )
    return None


@demand(
    "The offer names the token as the token's own domain does",
    texts.explicit(texts.TOKEN_NAME, texts.TOKEN_VERSION),
    suffix="token",
)
def _names_the_token(play: Play, answer: Answer) -> Found:
    network = play.room.network
    wanted = (network.token_name, network.token_version)
    offered = play.required(answer).get("extensions")
    sponsored = isinstance(offered, dict) and SPONSORED_PERMIT in offered
    for offer in payables(play.dialect, answer, network):
        given = offer.get("extra")
        extra = given if isinstance(given, dict) else {}
        named = (extra.get("name"), extra.get("version"))
        # version 1 leaves `extra` to the scheme, and Permit2 needs the names for a permit only
        is_needed = play.dialect.version == 2 and not (play.dialect.by_permit2 and not sponsored)
        is_left_out = named == (None, None) and not is_needed
        if named != wanted and not is_left_out:
            return Violation(
                demand="offer-names-token",
                actual=f"{named[0]!r} and {named[1]!r}; the token at {offer['asset']} is "
                f"{wanted[0]!r} and {wanted[1]!r}",
            )
    return None


@demand(
    "Whether two requests are offered the same",
    texts.silent(texts.ACCEPTS, why="nothing says how long an offer holds"),
)
def _steady(play: Play, observed: tuple[Any, Any]) -> Found:
    first, second = observed
    names = (play.dialect.amount, "payTo", "asset", "network", "scheme")
    changed = [each for each in names if (first or {}).get(each) != (second or {}).get(each)]
    return f"it changes from one request to the next: {', '.join(changed)}" if changed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A 402, and the answer to a payment, both requested in the same odd way."""

    unpaid: Answer
    paid: Answer


def _visited(headers: Headers) -> Callable[[Play], Awaitable[Visit]]:
    """Return the play of a purchase with these headers, which the draft's request does not have."""

    async def play(it: Play) -> Visit:
        payment = await it.draft()
        unpaid = await it.ask(headers=headers)
        return Visit(unpaid=unpaid, paid=await it.pay(payment, headers=headers))

    return play


@demand("A browser's request gets a payable 402", texts.explicit(texts.SIGNAL, texts.REQUIRED))
def _still_payable(play: Play, observed: Visit) -> Found:
    answer = observed.unpaid
    if answer.status != 402:
        return Violation(demand="browser-gets-402", actual=answer.how, why=CANNOT)
    if play.dialect.version == 2 and payable(play.dialect, answer, play.room.network) is None:
        return Violation(
            demand="page-has-offer",
            actual=answer.how,
            why=CANNOT,
        )
    return None


def _is_served(_: Play, observed: Visit) -> Found:
    if observed.paid.is_2xx:
        return None
    return Violation(demand="paid-is-served-any-way", actual=observed.paid.how)


def _served(title: str) -> Demand:
    return demand(title, texts.explicit(texts.SUCCESS), suffix="paid")(_is_served)


NOT_SHARED = "it shares nothing with scripts of other origins, so that no browser's script buys"


def is_shared(answer: Answer) -> bool:
    """Tell whether an answer is shared with scripts of other origins."""
    return "access-control-allow-origin" in answer.headers


@demand(
    "A script with access to the answers can read offer and receipt",
    texts.ours(
        texts.REQUIRED,
        because="browsers hide headers that are not exposed (xpaysh/awesome-x402#414)",
    ),
)
def _exposed(play: Play, observed: tuple[Answer, Answer]) -> Found:
    if not is_shared(observed[0]):
        return NOT_SHARED
    names = [x402.REQUIRED_HEADER] if play.dialect.version == 2 else []
    for answer, wanted in ((observed[0], names), (observed[1], [play.dialect.response_header])):
        shown = answer.headers.get("access-control-expose-headers", "").lower()
        listed = [each.strip() for each in shown.split(",")]
        missing = [each for each in wanted if each.lower() not in listed and "*" not in listed]
        if "access-control-allow-origin" not in answer.headers or missing:
            return Violation(
                demand="scripts-read-headers",
                actual=f"Access-Control-Allow-Origin, or in Access-Control-Expose-Headers "
                f"{', '.join(wanted)}, is missing: "
                + answer.showing("Access-Control-Allow-Origin", "Access-Control-Expose-Headers"),
            )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """A 402 to a script of another origin, and the preflight of the payment."""

    unpaid: Answer
    answer: Answer


@demand(
    "A preflight of goods shared with other origins is not asked to pay",
    texts.explicit(texts.PREFLIGHT),
)
def _is_free(play: Play, observed: Preflight) -> Found:
    if observed.answer.status != 402:
        return None
    if not is_shared(observed.unpaid):
        return NOT_SHARED
    return Violation(
        demand="preflight-is-free",
        actual=f"{observed.unpaid.showing('Access-Control-Allow-Origin')}; the preflight: "
        f"{observed.answer.how}",
    )


@demand(
    "A preflight of shared goods allows the payment's header",
    texts.ours(texts.REQUIRED, because="else no script in a browser can send a payment"),
    suffix="allows",
)
def _allows(play: Play, observed: Preflight) -> Found:
    answer = observed.answer
    if not is_shared(observed.unpaid):
        return NOT_SHARED
    allowed = answer.headers.get("access-control-allow-headers", "").lower()
    listed = [each.strip() for each in allowed.split(",")]
    if answer.is_2xx and ("*" in listed or play.dialect.payment_header.lower() in listed):
        return None
    return Violation(
        demand="preflight-allows-payment",
        actual=f"no 2xx whose Access-Control-Allow-Headers has {play.dialect.payment_header}: "
        + answer.showing("Access-Control-Allow-Headers"),
    )


@demand(
    "The server's own URL behind a proxy",
    texts.silent(
        texts.RESOURCE,
        why="headers of a proxy are anybody's, and a server that trusts none is right; "
        "payers that compare URLs refuse (x402-foundation/x402 issues 636 and 924)",
    ),
)
def _calls_itself(play: Play, observed: Visit) -> str:
    required = play.required(observed.unpaid)
    where = required.get("resource") or next(iter(offers_in(play.dialect, observed.unpaid)), {})
    url = where.get("url") or where.get("resource") if isinstance(where, dict) else where
    return f"asked for at https://{OUTSIDE}, it calls itself {url}"


@demand(
    "Each payable offer is served, for the offered amount",
    texts.explicit(texts.ACCEPTS, texts.ACCEPTED),
)
def _is_each_sold(play: Play, observed: list[Trade]) -> Found:
    for each in observed:
        amount = int(each.payment.offer[play.dialect.amount])
        paid = [moved.amount_base for moved in each.moved]
        if play.dialect is Dialect.UPTO:  # the amount of an offer is a maximum
            paid = [max(base, amount) for base in paid]
        if not paid and play.used_nothing(each):
            continue
        if not each.is_served or paid != [amount]:
            return Violation(
                demand="each-offer-sells",
                actual=f"the offer of {amount} base units: {each.summary}",
                loss=play.tokens(amount, "charged and not served") if each.moved else None,
            )
    return None


@case(
    "offer/whole",
    _is_whole,
    _says_why,
    demand(
        "Both versions in an answer make the same offer",
        texts.ours(
            texts.ACCEPTS,
            because="a payer of the other version pays another price for the same thing",
        ),
        suffix="same",
        absent=dict.fromkeys(
            (Dialect.V2, Dialect.PERMIT2, Dialect.UPTO, Dialect.MCP), "it is judged with version 1"
        ),
    )(_same),
    _same_in_body,
    _names_the_token,
)
async def _asked(play: Play) -> Answer:
    return await play.ask()


@case("offer/steady", _steady)
async def _twice(play: Play) -> tuple[Any, Any]:
    first, second = await play.ask(), await play.ask()
    return tuple(payable(play.dialect, each, play.room.network) for each in (first, second))  # type: ignore[return-value]


@case("offer/cors", _exposed)
async def _from_a_browser(play: Play) -> tuple[Answer, Answer]:
    unpaid = await play.ask(headers=[ORIGIN])
    payment = await play.draft()
    return unpaid, await play.ask(headers=[ORIGIN, payment.header])


@case("offer/preflight", _is_free, _allows)
async def _preflight(play: Play) -> Preflight:
    unpaid = await play.ask(headers=[ORIGIN])
    wanted = [
        ORIGIN,
        ("Access-Control-Request-Method", play.item.method),
        ("Access-Control-Request-Headers", play.dialect.payment_header.lower()),
    ]
    return Preflight(
        unpaid=unpaid, answer=await play.ask(headers=wanted, method="OPTIONS", about="preflight")
    )


@case("offer/proxy", _calls_itself, _served("A payment through a proxy is served"))
async def _behind_a_proxy(play: Play) -> Visit:
    """Buy as through a proxy that ends TLS; servers of other host names only are not judged."""
    unpaid = await play.ask(headers=PROXY)
    if unpaid.status != 402 or payable(play.dialect, unpaid, play.room.network) is None:
        raise NotApplicable(f"asked for by another name, it makes no offer: {unpaid.how}")
    payment = await play.draft(headers=PROXY)
    return Visit(unpaid=unpaid, paid=await play.pay(payment, headers=PROXY))


@case(
    "offer/each",
    _is_each_sold,
    absent={Dialect.V1: "a payment of version 1 does not say which offer it is for"},
)
async def _each(play: Play) -> list[Trade]:
    """Buy by each payable offer."""
    count = len(await play.drafts())
    if count < 2:
        raise NotApplicable("only one offer of the 402 can be paid here")
    found = []
    for place in range(count):
        payment = (await play.drafts())[place]
        found.append(await play.sent_again(payment, [await play.pay(payment)], again=0))
    return found


ROWS = [
    case("offer/browser", _still_payable, _served("A browser's payment is served"))(
        _visited([("Accept", PAGE), ("User-Agent", BROWSER)])
    ),
]
