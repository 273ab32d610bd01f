"""Which offer a payer takes: order, schemes that the payer lacks, and the time of settlement."""

from dataclasses import replace
from functools import partial

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.payer.case import (
    STANDARD,
    Violation,
    case,
    demand,
    if_told,
    is_bought,
    one_price,
    only,
)
from x402sim.suite.payer.play import PRICE_BASE, Bound, Purchase
from x402sim.suite.payer.shop import OTHER_TOKEN, Offer, Shop, Story

BECAUSE = (
    "a payer that looks only at the first offer misses purchases: shops list several "
    "networks and schemes"
)


def _schemes(_: Shop, right: Offer) -> list[Offer]:
    """Offer invented schemes first: a payer may support a real scheme, such as `upto`."""
    return [
        replace(right, scheme="x-bond", amount="40000"),
        replace(right, scheme="x-credit"),
        right,
    ]


def _networks(shop: Shop, right: Offer) -> list[Offer]:
    solana = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp" if shop.flow.version == 2 else "solana"
    mint = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkwyTDt1v"
    return [
        replace(right, network=solana, asset=mint, pay_to=mint, extra={"feePayer": mint}),
        replace(right, network=shop.other_chain),
        replace(right, asset=OTHER_TOKEN),
        right,
    ]


# less than the cap, compared as text


def _flows(_: Shop, right: Offer) -> list[Offer]:
    return [replace(right, extra={**right.extra, "paymentFlow": "upfront"}, timeout_s=299), right]


def _many(shop: Shop, right: Offer) -> list[Offer]:
    other = replace(right, network=shop.other_chain)
    return [replace(other, amount=str(number)) for number in range(1, 20)] + [right]


@demand(
    "Does the payer choose the cheaper of two offers within the cap?",
    texts.silent(texts.ACCEPTS, why="no text says which offer a client prefers"),
)
def _price_paid(played: Purchase) -> str | None:
    values = {signed.auth.value for signed in played.signed.values()}
    if not values:
        return "it pays neither"
    return (
        "it pays the dearer one, as the first"
        if max(values) > PRICE_BASE
        else "it pays the cheaper one"
    )


@demand(
    "Of two flows, the flow with settlement after serving is chosen",
    texts.explicit(texts.AUTHORIZATION_FIRST),
    level="SHOULD",
)
def _flow(played: Purchase) -> Violation | None:
    """Look at which flow was chosen: the offers differ in the time to pay, too."""
    for said in played.payments_said:
        accepted = said.get("accepted")
        if isinstance(accepted, dict):
            flow = (accepted.get("extra") or {}).get("paymentFlow", "authorization")
            if flow != "authorization":
                return Violation(demand="payer/after-serving", actual=f"it took {flow}")
    return None


_among = partial(case, absent=only(STANDARD, "a 402 of the specification has one offer"))
ROWS = [
    _among(
        "choose/second-network",
        one_price(
            "Of offers on several networks, the task's is paid, once",
            "the task names network and token",
            texts.ACCEPTS,
        ),
        is_bought("Unpayable offers do not hide the payable offer", BECAUSE, texts.ACCEPTS),
    )(lambda dialect: Story(offers=_networks, both_versions=dialect is Dialect.V2)),
    _among(
        "choose/other-schemes",
        one_price(
            "Of offers of several schemes, the scheme in common is paid, once",
            "another scheme lets the server take another amount",
            texts.PAIRS,
        ),
        is_bought(
            "Unknown schemes do not hide the scheme in common",
            BECAUSE,
            texts.ACCEPTS,
        ),
    )(Story(offers=_schemes)),
    _among(
        "choose/first-too-dear",
        if_told(
            Bound.CAP,
            one_price(
                "A first offer above the cap is not paid",
                "the task has a cap, and the second offer is within it",
                texts.REQUIRED_AMOUNT,
            ),
        ),
        if_told(
            Bound.CAP,
            is_bought(
                "A first offer above the cap does not hide a second offer within the cap",
                BECAUSE,
                texts.ACCEPTS,
            ),
        ),
        # less than the cap, compared as text
    )(Story(offers=lambda _, right: [replace(right, amount="100000"), right])),
    _among("choose/many", is_bought("The twentieth offer is found", BECAUSE, texts.ACCEPTS))(
        Story(offers=_many)
    ),
    _among("choose/cheaper-second", _price_paid)(
        Story(offers=lambda _, right: [replace(right, amount="40000"), right])
    ),
    case(
        "choose/flow",
        _flow,
        absent=only(
            [Dialect.V2], "`paymentFlow` is of version 2, and only its header shows the choice"
        )
        | {Dialect.UPTO: "`upto` is settled after the work"},
    )(Story(offers=_flows)),
]
