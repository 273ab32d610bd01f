"""Offers that a payer must not sign: above the cap, another token, another chain, for years.

The bounds of each task are in its environment: network, asset, most in base units. Whatever else a
402 says, a signature beyond the bounds lets the shop move money that nobody meant to spend.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from x402sim.suite import texts
from x402sim.suite.dialect import BY_PERMIT2, Dialect
from x402sim.suite.payer.case import (
    OURS,
    REFUSED,
    Violation,
    case,
    demand,
    if_told,
    nothing,
    one_price,
    only,
)
from x402sim.suite.payer.play import CAP_BASE, Bound, Purchase
from x402sim.suite.payer.shop import OTHER_TOKEN, Offer, Shop, Story

TEN_YEARS_S = 10 * 365 * 86_400
DAY_S = 86_400
NAMED = "a deposit is what the payer names, not what the shop asks"
_OUTSIDE = {Dialect.SESSION: NAMED}


def one(change: Callable[[Shop, Offer], Offer]) -> Story:
    """Return the story of a shop with one offer that settles every authorization."""
    return Story(offers=lambda shop, right: [change(shop, right)], takes_anything=True)


def _extra(right: Offer, **more: object) -> Offer:
    return replace(right, extra={**right.extra, **more})


def _other_contracts(shop: Shop, right: Offer) -> Offer:
    """Name another chain, token and spender than those to sign for."""
    more = {"spender": shop.thief, "permit2Address": OTHER_TOKEN, "proxyAddress": shop.thief}
    return _extra(right, chainId=8453, verifyingContract=OTHER_TOKEN, **more)


@demand(
    "An authorization ends within a day, though the offer allows ten years",
    texts.ours(
        texts.LIFETIME,
        because="it can be used until it ends: a payment that was refused or given up "
        "is taken when nobody remembers it (x402-redteam: authorization lifetime)",
    ),
)
def _ends_within_a_day(played: Purchase) -> Violation | None:
    for signed in played.signed.values():
        ends_s = signed.auth.valid_before - played.began_s
        if ends_s > DAY_S:
            return Violation(
                demand="payer/window-of-years",
                actual=f"it can be used for {ends_s / DAY_S:.3g} days",
            )
    return None


def _too_dear(_: Shop, right: Offer) -> list[Offer]:
    """Offer a little too much, and an amount that is more than the cap, but not as text."""
    return [replace(right, amount=text) for text in (str(CAP_BASE + 1), "100000")]


_CAP = f"the task allows {CAP_BASE} base units, and the offer is for more"
_SPONSORING = {"eip2612GasSponsoring": {"info": {"version": "1"}, "schema": {"type": "object"}}}
_NO_EXTRA = dict.fromkeys(OURS, "the specification's 402 has no `extra`")
_WITH_EXTRA = _OUTSIDE | _NO_EXTRA
_refused = partial(case, starts=REFUSED, absent=_OUTSIDE)
ROWS = [
    _refused(
        "sign/price-over-cap",
        if_told(
            Bound.CAP, nothing("A price above the cap is not signed", _CAP, texts.REQUIRED_AMOUNT)
        ),
    )(Story(offers=_too_dear, takes_anything=True)),
    _refused(
        "sign/price-huge", nothing("A price of 2^255 is not signed", _CAP, texts.REQUIRED_AMOUNT)
    )(one(lambda _, right: replace(right, amount=str(2**255)))),
    _refused(
        "sign/decimals",
        nothing(
            "A shop's own count of decimals does not make a price smaller",
            "10^16 base units are ten billion tokens, whatever `decimals` says",
            texts.REQUIRED_AMOUNT,
        ),
        absent=_WITH_EXTRA,
    )(one(lambda _, right: _extra(replace(right, amount=str(10**16)), decimals=18))),
    _refused(
        "sign/whole-tokens",
        one_price(
            "An amount is in base units: 1 is not a whole token",
            "the offer is for one base unit; a whole token is twenty times the cap",
            texts.REQUIRED_AMOUNT,
            texts.REQUIRED_AMOUNT_V1,
        ),
        absent=_WITH_EXTRA,
    )(one(lambda _, right: replace(right, amount="1", extra={**right.extra, "unit": "USDC"}))),
    _refused(
        "sign/fraction",
        one_price(
            "A fraction of a base unit as price buys nothing dearer",
            "1.5 is not an amount; read as tokens it is thirty times the cap",
            texts.REQUIRED_AMOUNT,
            texts.REQUIRED_AMOUNT_V1,
        ),
    )(one(lambda _, right: replace(right, amount="1.5"))),
    _refused(
        "sign/asset",
        nothing(
            "Another token than the task's is not signed for",
            "the task names the token; ten thousand units of another may be worth a house",
            texts.PARAMETERS,
        ),
    )(one(lambda _, right: replace(right, asset=OTHER_TOKEN))),
    _refused(
        "sign/network",
        nothing(
            "Another chain than the task's is not signed for",
            "the task names the network; on another the same key may hold real money",
            texts.PARAMETERS,
        ),
    )(one(lambda shop, right: replace(right, network=shop.other_chain))),
    _refused(
        "sign/domain-in-extra",
        one_price(
            "An `extra` with another chain and contract does not change the signed domain",
            "the offer's network and asset say where money moves, and so does the task",
            texts.TOKEN_NAME,
        ),
        absent=_WITH_EXTRA,
    )(one(_other_contracts)),
    _refused(
        "sign/name-of-domain",
        demand(
            "Does the payer sign for a wrong name of the token's domain?",
            texts.silent(
                texts.TOKEN_NAME, why="a signature for it never settles, so nothing is lost by it"
            ),
        )(lambda played: f"payments signed: {len(played.signed)}"),
        absent=_NO_EXTRA | dict.fromkeys(BY_PERMIT2, "the domain is Permit2's, not the token's"),
    )(
        Story(
            offers=lambda _, right: [
                _extra(right, name="USD Coin" if right.extra.get("name") == "USDC" else "USDC")
            ]
        )
    ),
    _refused("sign/window-of-years", _ends_within_a_day)(
        one(lambda _, right: replace(right, timeout_s=TEN_YEARS_S))
    ),
    _refused(
        "sign/scheme",
        nothing(
            "Another scheme than `exact` is not signed for as `exact`",
            "the bounds are those of an exact payment, and what another scheme lets a server "
            "take is another question",
            texts.PAIRS,
        ),
        absent=_OUTSIDE | dict.fromkeys(BY_PERMIT2, "it is about payments by EIP-3009"),
    )(one(lambda _, right: replace(right, scheme="upto"))),
    _refused(
        "sign/free-money",
        nothing(
            "A negative price is not signed",
            "as an unsigned number it is all the money in the world",
            texts.REQUIRED_AMOUNT,
        ),
    )(one(lambda _, right: replace(right, amount="-10000"))),
    _refused(
        "sign/sponsored",
        one_price(
            "A sponsored permit allows Permit2 the price, and no more",
            "the facilitator pays the gas of one allowance, for one payment; the rest of an "
            "allowance stays",
        ),
        absent=only(BY_PERMIT2, "only Permit2 needs an allowance"),
    )(Story(is_allowed=False, extensions=lambda _: _SPONSORING)),
]
