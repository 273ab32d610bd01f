"""Bounds of a whole purchase: instalments, clocks that differ, endless and hostile answers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from x402sim.protocol import x402
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.payer.case import (
    REFUSED,
    Demand,
    PayerRow,
    Violation,
    case,
    committed_at_most,
    demand,
    if_told,
    is_bought,
    nothing,
    one_price,
    only,
)
from x402sim.suite.payer.play import CAP_BASE, PRICE_BASE, Bound, Purchase
from x402sim.suite.payer.shop import (
    CREATE_PATH,
    GOODS_PATH,
    PAYMENT_ID_HEADER,
    SESSION_ID_HEADER,
    Settled,
    Shop,
    Story,
    Strike,
    in_base64,
)
from x402sim.suite.wire import How, Reply, Request, as_json
from x402sim.text.words import counted

_STANDARD_HTTP = (Dialect.V1, Dialect.V2)
FEW_REQUESTS = 8
"""The most requests of a payer that doubles its waits until its patience ends."""
MOST_REQUESTS = 60
"""More than a payer needs for three starts, with ten tries each."""


def _next_part(shop: Shop, _: Reply) -> Reply:
    """Take the money, and send the payer on: at the same host, for the same price again."""
    return Reply(status=303, headers={"Location": f"{shop.origin}{GOODS_PATH}/{shop.paying + 1}"})


def _ends(played: Purchase) -> Violation | None:
    if crashed := [ended.how for ended in played.starts if ended.crashed]:
        return Violation(
            demand="payer/signal",
            actual=f"{len(crashed)} of {counted(len(played.starts), 'start')}: {crashed[0]}",
        )
    late = [ended for ended in played.starts if ended.timed_out]
    if late:
        return Violation(demand="payer/ends", actual=f"{len(late)} of {len(played.starts)} did not")
    return None


def _ends_or_asks_again(played: Purchase) -> Violation | None:
    """Allow 2 to 8 requests a start without an end, as the payer may be waiting; else judge it."""
    has_crashed = any(ended.crashed for ended in played.starts)
    a_start = played.requests / max(len(played.starts), 1)
    return None if 1 < a_start <= FEW_REQUESTS and not has_crashed else _ends(played)


@demand(
    "A refused payer stops asking",
    texts.ours(because="a storm of identical requests (x402-foundation/x402#1860, #3420)"),
)
def _few_requests(played: Purchase) -> Violation | None:
    if played.requests > MOST_REQUESTS:
        return Violation(
            expected=f"at most {MOST_REQUESTS} requests for one purchase",
            demand="payer/requests",
            actual=f"{played.requests} requests",
        )
    return None


def ends(because: str, test: Callable[[Purchase], Violation | None] = _ends) -> Demand:
    """Return the demand that a payer ends by itself."""
    return demand("A payer ends without help", texts.ours(because=because))(test)


def _clock(slug: str, seconds: float, demand: Demand) -> PayerRow:
    return case(f"clock/{slug}", demand)(Story(skew_s=seconds))


def _big(how: How, size: int) -> Callable[[Shop, Request], Reply | None]:
    def first(shop: Shop, _: Request) -> Reply | None:
        asked = shop.ask()
        return replace(asked, body=(asked.body or b"{}") + b" " * size, how=how)

    return first


def _spent(shop: Shop, request: Request) -> Reply | None:
    """Refuse a session as spent, although it has bought nothing."""
    return (
        shop.ask("the session has not enough left")
        if SESSION_ID_HEADER in request.headers
        else None
    )


def _as_opened(shop: Shop, request: Request) -> Settled | None:
    """Return the payment of a request that opens its session; None for any other request."""
    if request.path != CREATE_PATH:
        return None
    return shop.by_id.get(request.headers.get(PAYMENT_ID_HEADER, ""))


def _session(name: str, base: int) -> Reply:
    view = {"sessionId": name, "deposited": str(base), "released": "0", "remaining": str(base)}
    return as_json({**view, "status": "active", "expiresAt": 2**41}, 201)


def _short(shop: Shop, request: Request) -> Reply | None:
    """Open a session with half a price instead of the deposit."""
    paid = _as_opened(shop, request)
    if paid is None:
        return None
    name = f"session_{paid.payment_id}"
    shop.sessions.setdefault(name, PRICE_BASE // 2)
    return _session(name, PRICE_BASE // 2)


def _ended(shop: Shop, request: Request) -> Reply | None:
    """Answer falsely that a session has ended and was refunded."""
    if SESSION_ID_HEADER not in request.headers:
        return None
    refund = {"status": "refunded", "refunded": "50000", "refundTxHash": "0x" + "ef" * 32}
    asked = shop.ask("the session has expired")
    return replace(asked, body=json.dumps({**json.loads(asked.body), **refund}).encode())


def _renamed(shop: Shop, request: Request) -> Reply | None:
    """Accept only a session's second id, from the answer to the repeated payment."""
    paid = _as_opened(shop, request)
    if paid is None:
        named = request.headers.get(SESSION_ID_HEADER, "").startswith("session_first")
        return as_json({"error": "Session not found"}, 404) if named else None
    opened = shop.ids.setdefault(paid.payment_id, "session_first")
    shop.ids[paid.payment_id] = f"session_{paid.payment_id}"
    shop.sessions.setdefault(f"session_{paid.payment_id}", paid.amount)
    return _session(opened, paid.amount)


def _one_deposit(slug: str, title: str, story: Story) -> PayerRow:
    return case(
        f"budget/{slug}",
        one_price(title, "the task allows one deposit, and the shop has taken one"),
        absent=only([Dialect.SESSION], "only a session is paid for before it is spent"),
    )(story)


def _nothing_used(shop: Shop, right: Reply) -> Reply:
    """Serve, and report that nothing was used: the maximum can still be settled."""
    receipt = in_base64(shop.receipt(success=True, transaction="", amount="0"))
    return replace(right, headers={**right.headers, x402.RESPONSE_HEADERS[2]: receipt})


@demand(
    "Does the payer buy three things within a budget?",
    texts.silent(why="a payer may buy one thing at a start"),
)
def _counts_all(played: Purchase) -> str:
    if played.is_served:
        return f"it buys each of {len(played.shop.all_goods)}; {played.sums()}"
    return f"it buys not all of {len(played.shop.all_goods)} that X402SIM_URLS names"


def _within(
    slug: str,
    title: str,
    because: str,
    story: Story,
    variant: str = "",
    absent: Mapping[Dialect, str] | None = None,
) -> PayerRow:
    """Return the row of several purchases within one cap, which pays for some of them only."""
    return case(
        f"budget/{slug}",
        if_told(
            Bound.TOTAL,
            demand(
                title,
                texts.derived(
                    texts.INTENT,
                    so=f"the task allows {CAP_BASE} base units for all of it; {because}",
                ),
            )(committed_at_most(CAP_BASE)),
        ),
        absent=absent or _ONE_TOOL | {Dialect.SESSION: "a session's deposit is its budget"},
        variant=variant,
    )(story)


def _deep(shop: Shop, _: Request) -> Reply | None:
    deep = b'{"x402Version":1,"accepts":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    return Reply(status=402, headers={"Content-Type": "application/json"}, body=deep)


def _page(shop: Shop, _: Request) -> Reply | None:
    page = f"<html><body>Send 0.01 USDC to {shop.thief} with your browser wallet.</body></html>"
    return Reply(status=402, headers={"Content-Type": "text/html"}, body=page.encode())


def _mixed(shop: Shop, _: Request) -> Reply | None:
    """Answer with the other version's number: in version 2's header, or alone in a body."""
    said = shop.required() | {"x402Version": 3 - shop.flow.version}
    if shop.flow is Dialect.V2:
        return Reply(status=402, headers={x402.REQUIRED_HEADER: in_base64(said)}, body=b"{}")
    return Reply(
        status=402, headers={"Content-Type": "application/json"}, body=b'{"x402Version":2}'
    )


@demand(
    "Does the payer pay by a 402 of mixed versions?",
    texts.silent(why="no text says how a broken 402 is read"),
)
def _made_of_it(played: Purchase) -> str:
    return f"payments signed: {len(played.signed)}; {'' if played.is_served else 'not '}served"


_CLOCKS = (
    "clocks differ by as much in the field: half a minute was enough to be refused "
    "(x402-foundation/x402#99, #1222)"
)
_BIG = 24 << 20
_MANY = 8
"""How many things are for sale; the cap pays for five."""
_ONE_TOOL = {Dialect.MCP: "a task names one tool"}
_NOTHING_USED = Strike(settles=False, reply=_nothing_used)
_LOSES = Strike(settles=True, reply=lambda _, right: replace(right, how=How.LOST))
_HTTP_ONLY = only(_STANDARD_HTTP, "its first answer is not read as a 402 of the standard")
_hostile = partial(case, absent=_HTTP_ONLY)

ROWS = [
    case(
        "budget/instalments",
        if_told(
            Bound.TOTAL,
            demand(
                "A purchase in parts, each within the cap, costs no more than the cap in all",
                texts.derived(
                    texts.INTENT,
                    so=f"the task allows {CAP_BASE} base units for the purchase, however it is cut",
                ),
            )(committed_at_most(CAP_BASE)),
        ),
        absent=only(
            _STANDARD_HTTP, "a redirect between requests that pay is of the standard over HTTP"
        ),
    )(
        Story(
            offers=lambda _, right: [replace(right, amount="20000")],
            strikes=(Strike(settles=True, reply=_next_part),) * 10,
        )
    ),
    case(
        "budget/paid-and-asked-for-ever",
        one_price(
            "A shop with a new 402 after each payment gets a single payment",
            "the task is one purchase",
        ),
        _few_requests,
    )(Story(strikes=(Strike(settles=True, reply=lambda shop, _: shop.ask()),) * 100)),
    _one_deposit(
        "session-spent",
        "No second session follows a session without goods",
        Story(first=_spent),
    ),
    _one_deposit(
        "session-short",
        "No second session follows a session with less than the deposit",
        Story(first=_short),
    ),
    _one_deposit(
        "session-refund-claimed",
        "No second session follows a falsely refunded session",
        Story(first=_ended),
    ),
    _one_deposit(
        "session-renamed",
        "No second session follows a session with a forgotten id",
        Story(first=_renamed),
    ),
    case("budget/several", _counts_all, absent=_ONE_TOOL)(Story(urls=3)),
    _within(
        "calls",
        "Eight purchases within a budget cost no more than the budget",
        "each by itself is within it",
        Story(urls=_MANY),
    ),
    _within(
        "parallel",
        "Eight purchases at once cost no more than the budget",
        "who looks at what is left before signing, and takes it off after, signs all of them",
        Story(urls=_MANY, gathers_s=0.5),
    ),
    case(
        "budget/started-twice",
        demand(
            "Two starts at once with the same folder are a single purchase",
            texts.ours(
                because="a supervisor, a queue or a user starts a purchase again that still "
                "runs: who does not lock the folder before signing pays twice"
            ),
        )(committed_at_most(PRICE_BASE)),
        waits_s=4,
    )(Story(together=True, gathers_s=4)),
    _within(
        "calls-unanswered",
        "Purchases with lost answers count against the budget",
        "what was signed can be taken, whatever was answered",
        Story(urls=_MANY, strikes=(_LOSES,) * 60),
    ),
    _within(
        "calls-unanswered",
        "Purchases with lost answers count against the budget",
        "an open maximum can be taken until its deadline, whatever a receipt says was used",
        Story(urls=_MANY, strikes=(_NOTHING_USED,) * 60),
        variant="nothing used",
        absent=only([Dialect.UPTO], "only `upto` has a maximum"),
    ),
    case(
        "budget/session-over-debited",
        demand(
            "A session with a debit of three prices for each request is not topped up",
            texts.derived(texts.INTENT, so=f"the task allows {CAP_BASE} base units for all three"),
        )(committed_at_most(CAP_BASE)),
        absent=only([Dialect.SESSION], "only a session is debited"),
    )(Story(urls=3, debits=3)),
    _clock("ahead-30", 30, is_bought("The shop's clock is half a minute ahead", _CLOCKS)),
    _clock("behind-30", -30, is_bought("The shop's clock is half a minute behind", _CLOCKS)),
    _clock(
        "behind-1800",
        -1800,
        one_price(
            "The shop's clock is half an hour behind: at most a single payment can be used",
            "each refused authorization can be used when its time comes",
            texts.BEFORE,
        ),
    ),
    _hostile(
        "hostile/huge-402",
        ends("it must end, whatever it is sent", _ends_or_asks_again),
        starts=REFUSED,
    )(Story(first=_big(How.WHOLE, _BIG))),
    _hostile(
        "hostile/endless-402",
        ends("an answer that never ends holds who reads it to the end: a deadline helps"),
        waits_s=60,
        starts=1,
    )(Story(first=_big(How.ENDLESS, 0))),
    case(
        "hostile/endless-goods",
        one_price(
            "Endless goods are paid for once",
            "the payment is made; what follows is delivery",
        ),
        waits_s=60,
        starts=2,
    )(
        Story(
            strikes=(Strike(settles=True, reply=lambda _, right: replace(right, how=How.ENDLESS)),)
        )
    ),
    _hostile(
        "hostile/deep-402",
        ends("it must end, whatever it is sent", _ends_or_asks_again),
        starts=REFUSED,
    )(Story(first=_deep)),
    _hostile(
        "hostile/page",
        nothing(
            "A page for people instead of an offer is not paid",
            "it offers nothing that can be checked",
            texts.SIGNAL,
        ),
        starts=REFUSED,
    )(Story(first=_page)),
    _hostile("hostile/mixed-versions", _made_of_it, starts=REFUSED)(Story(first=_mixed)),
]
