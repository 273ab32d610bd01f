"""The offer: a 402 of each version, the same in both; readable by browsers, kept by no cache."""

import re
from typing import Any

from x402sim.protocol import x402
from x402sim.protocol.networks import NETWORKS
from x402sim.suite.played import Found, Violation
from x402sim.suite.server import texts
from x402sim.suite.server.case import Demand, Row
from x402sim.suite.server.payment import Dialect, offers_in, payable, required_in
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer

_DIGITS = re.compile("0|[1-9][0-9]*")
_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")
_CAIP = re.compile("[-a-z0-9]{3,8}:[-_a-zA-Z0-9]{1,32}")
PAGE = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
ORIGIN = ("Origin", "https://app.example")


async def _asked(play: Play) -> Answer:
    return await play.ask()


def _wrong_in(dialect: Dialect, offer: dict[str, Any]) -> str:
    """Return what is wrong in an offer; "" if nothing."""
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
    if dialect is Dialect.V2 and not _CAIP.fullmatch(offer["network"]):
        return f"network is {offer['network']!r}, and no CAIP-2 name"
    is_evm = offer["network"].startswith("eip155:") or offer["network"] in NETWORKS
    if offer["scheme"] == x402.SCHEME and is_evm and not _ADDRESS.fullmatch(offer["asset"]):
        return f"asset is {offer['asset']!r}, and no address"
    return ""


def _is_whole(play: Play, answer: Answer) -> Found:
    required = required_in(play.dialect, answer) or {}
    wrong = next(
        filter(None, (_wrong_in(play.dialect, each) for each in offers_in(play.dialect, answer))),
        "",
    )
    if not wrong and not required.get("accepts"):
        wrong = "accepts is empty"
    if not wrong and play.dialect is Dialect.V2:
        resource = required.get("resource")
        url = resource.get("url") if isinstance(resource, dict) else None
        if not (isinstance(url, str) and url):
            wrong = f"resource.url is {url!r}"
    if not wrong and answer.status != 402:
        wrong = f"its status is {answer.status}"
    if not wrong:
        return None
    return Violation(expected="a whole offer", actual=f"{wrong}; {answer.how}")


def _says_why(play: Play, answer: Answer) -> Found:
    required = required_in(play.dialect, answer) or {}
    if isinstance(required.get("error"), str) and required["error"]:
        return None
    return Violation(expected="error, in words", actual=answer.how, why="a payer cannot act on it")


def _same(play: Play, answer: Answer) -> Found:
    found = [payable(each, answer, play.room.network) for each in Dialect]
    if None in found or required_in(Dialect.V1, answer) is None:
        return None
    said = [
        (each[dialect.amount], each["payTo"].lower(), each["asset"].lower())
        for dialect, each in zip(Dialect, found, strict=True)
        if each is not None
    ]
    if said[0] == said[1]:
        return None
    return Violation(
        expected="the same amount, payee and asset in body and header",
        actual=f"version 1: {', '.join(said[0])}; version 2: {', '.join(said[1])}",
        why="who reads the other one pays too much, or too little and is refused",
    )


async def _twice(play: Play) -> tuple[Any, Any]:
    first, second = await play.ask(), await play.ask()
    return tuple(payable(play.dialect, each, play.room.network) for each in (first, second))  # type: ignore[return-value]


def _steady(play: Play, seen: tuple[Any, Any]) -> Found:
    first, second = seen
    names = (play.dialect.amount, "payTo", "asset", "network", "scheme")
    changed = [each for each in names if (first or {}).get(each) != (second or {}).get(each)]
    return f"it changes from one request to the next: {', '.join(changed)}" if changed else None


async def _in_browser(play: Play) -> Answer:
    return await play.ask(headers=[("Accept", PAGE), ("User-Agent", BROWSER)])


def _still_payable(play: Play, answer: Answer) -> Found:
    if answer.status != 402:
        return Violation(expected="402 for a browser, too", actual=answer.how)
    if play.dialect is Dialect.V2 and payable(play.dialect, answer, play.room.network) is None:
        return Violation(
            expected="PAYMENT-REQUIRED beside a page, too",
            actual=answer.how,
            why="an agent that asks as browsers do cannot pay",
        )
    return None


async def _from_a_browser(play: Play) -> tuple[Answer, Answer]:
    unpaid = await play.ask(headers=[ORIGIN])
    payment = await play.draft()
    return unpaid, await play.ask(headers=[ORIGIN, payment.header])


def _exposed(play: Play, seen: tuple[Answer, Answer]) -> Found:
    names = [x402.REQUIRED_HEADER] if play.dialect is Dialect.V2 else []
    for answer, wanted in ((seen[0], names), (seen[1], [play.dialect.response_header])):
        shown = answer.headers.get("access-control-expose-headers", "").lower()
        listed = [each.strip() for each in shown.split(",")]
        missing = [each for each in wanted if each.lower() not in listed and "*" not in listed]
        if "access-control-allow-origin" not in answer.headers or missing:
            return Violation(
                expected="Access-Control-Allow-Origin, and "
                f"Access-Control-Expose-Headers: {', '.join(wanted)}",
                actual=answer.how,
                why="a browser's client cannot read it, and so cannot pay",
            )
    return None


async def _preflight(play: Play) -> Answer:
    wanted = [
        ORIGIN,
        ("Access-Control-Request-Method", play.item.method),
        ("Access-Control-Request-Headers", play.dialect.payment_header.lower()),
    ]
    return await play.ask(headers=wanted, method="OPTIONS")


def _is_free(play: Play, answer: Answer) -> Found:
    if answer.status != 402:
        return None
    return Violation(
        expected="a preflight that is not asked to pay",
        actual=answer.how,
        why="a browser sends no payment with a preflight, so it never gets further",
    )


def _allows(play: Play, answer: Answer) -> Found:
    allowed = answer.headers.get("access-control-allow-headers", "").lower()
    listed = [each.strip() for each in allowed.split(",")]
    if answer.is_2xx and ("*" in listed or play.dialect.payment_header.lower() in listed):
        return None
    return Violation(
        expected=f"2xx, and Access-Control-Allow-Headers with {play.dialect.payment_header}",
        actual=answer.how,
        why="a browser does not send the payment",
    )


async def _paid(play: Play) -> tuple[Answer, Answer]:
    payment = await play.draft()
    return play.answers[-1], await play.pay(payment)


def _invites(answer: Answer) -> str:
    """Return the directive by which a shared cache may keep an answer; "" without one."""
    said = answer.headers.get("cache-control", "").lower()
    listed = [each.strip() for each in said.split(",") if each.strip()]
    if any(each.split("=")[0] in ("no-store", "private", "no-cache") for each in listed):
        return ""
    for each in listed:
        name, _, value = each.partition("=")
        if name == "public" or (name in ("max-age", "s-maxage") and value.strip('"') != "0"):
            return each
    return ""


def _not_kept(_: Play, seen: tuple[Answer, Answer]) -> Found:
    for what, answer in zip(("the 402", "the paid answer"), seen, strict=True):
        if directive := _invites(answer):
            return Violation(
                expected="no leave for a shared cache to keep it",
                actual=f"{what}: Cache-Control: {answer.headers['cache-control']} ({directive})",
                why="a shared cache hands out what was paid for, or an old price, to everybody",
            )
    return None


def _forbidden(play: Play, seen: tuple[Answer, Answer]) -> Found:
    paid = seen[1]
    said = paid.headers.get("cache-control", "").lower()
    if play.item.method != "GET" or any(each in said for each in ("no-store", "private")):
        return None
    return Violation(
        expected="Cache-Control: no-store or private with what was paid for",
        actual=f"Cache-Control: {said or 'is missing'}",
        why="caches may keep a 200 to a GET that says nothing (RFC 9111, 4.2.2)",
    )


async def _behind_proxy(play: Play) -> Answer:
    told = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "shop.example")]
    return await play.ask(headers=told)


def _url_of(play: Play, answer: Answer) -> str:
    required = required_in(play.dialect, answer) or {}
    where = required.get("resource") or next(iter(offers_in(play.dialect, answer)), {})
    url = where.get("url") or where.get("resource") if isinstance(where, dict) else where
    return f"behind a proxy it calls itself {url}"


ROWS = [
    Row(
        section="offer",
        slug="whole",
        play=_asked,
        demands=[
            Demand(
                title="The offer has every field that it must have, of the right type",
                ground=texts.explicit(
                    texts.SIGNAL, texts.REQUIRED, texts.FIELDS, texts.FIELDS_V1, texts.RESOURCE
                ),
                test=_is_whole,
            ),
            Demand(
                title="The 402 says in words why it asks for a payment",
                ground=texts.ours(texts.EXPLAINS, because="a payer can act on a reason only"),
                test=_says_why,
                suffix="reason",
            ),
            Demand(
                title="Header and body offer the same",
                ground=texts.ours(
                    texts.ACCEPTS,
                    because="a payer of the other version pays another price for the same thing",
                ),
                test=_same,
                suffix="same",
            ),
        ],
    ),
    Row(
        section="offer",
        slug="steady",
        play=_twice,
        demands=[
            Demand(
                title="Whether two requests are offered the same",
                ground=texts.silent(texts.ACCEPTS, why="nothing says how long an offer holds"),
                test=_steady,
            )
        ],
    ),
    Row(
        section="offer",
        slug="browser",
        play=_in_browser,
        demands=[
            Demand(
                title="Asked as a browser asks, it is a 402 that can be paid",
                ground=texts.explicit(texts.SIGNAL, texts.REQUIRED),
                test=_still_payable,
            )
        ],
    ),
    Row(
        section="offer",
        slug="cors",
        play=_from_a_browser,
        demands=[
            Demand(
                title="A script in a browser can read offer and receipt",
                ground=texts.ours(
                    texts.REQUIRED,
                    because="browsers hide headers that are not exposed (xpaysh/awesome-x402#414)",
                ),
                test=_exposed,
            )
        ],
    ),
    Row(
        section="offer",
        slug="preflight",
        play=_preflight,
        demands=[
            Demand(
                title="A preflight is not asked to pay",
                ground=texts.ours(
                    texts.SIGNAL,
                    because="a browser sends no payment with it (xpaysh/awesome-x402#414)",
                ),
                test=_is_free,
            ),
            Demand(
                title="A preflight allows the payment's header",
                ground=texts.ours(
                    texts.REQUIRED, because="else no script in a browser can send a payment"
                ),
                test=_allows,
                suffix="allows",
            ),
        ],
    ),
    Row(
        section="offer",
        slug="cache",
        play=_paid,
        demands=[
            Demand(
                title="No shared cache is invited to keep the 402 or the paid answer",
                ground=texts.derived(
                    texts.NO_VALID_PAYMENT,
                    so="who gets a paid answer out of a cache has attached no payment",
                ),
                test=_not_kept,
            ),
            Demand(
                title="The paid answer forbids shared caches to keep it",
                ground=texts.ours(
                    texts.NO_VALID_PAYMENT,
                    because="x402-foundation/x402 issues 2955 and 2990: caches kept paid answers",
                ),
                test=_forbidden,
                suffix="forbidden",
            ),
        ],
    ),
    Row(
        section="offer",
        slug="proxy",
        play=_behind_proxy,
        demands=[
            Demand(
                title="What it calls itself behind a proxy",
                ground=texts.silent(
                    texts.RESOURCE, why="which headers of a proxy count is a matter of its set-up"
                ),
                test=_url_of,
            )
        ],
    ),
]
