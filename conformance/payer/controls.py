"""Controls: an honest shop. A payer that cannot buy here is not judged further in the flow; a payer
that pays too much, pays somebody else or pays for nothing here has failed.

Controls also check the signed payment: amount, nonce, window, and the accepted offer.
"""

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.payer.case import (
    Test,
    Violation,
    case,
    committed_at_most,
    demand,
    only,
    served,
)
from x402sim.suite.payer.play import PRICE_BASE, Purchase
from x402sim.suite.payer.shop import Lets, Story
from x402sim.suite.verdict import Found, as_json

DAY_S = 86_400
SLACK_S = 600
"""How far a payer's window may end after the offer's: what the public clients allow for clocks."""


def _paid_once_and_served(played: Purchase) -> Found:
    paid = committed_at_most(PRICE_BASE)(played)
    return paid if isinstance(paid, Violation) else served(played) or paid


@demand(
    "The nonce of an authorization is random",
    texts.explicit(texts.NONCE_FIELD, texts.UNIQUE),
    suffix="nonce",
)
def _random_nonce(played: Purchase) -> Violation | None:
    for nonce in {x.auth.nonce for x in played.signed.values() if x.lets is not Lets.PERMIT}:
        if len(set(nonce)) < 8:  # of 32 random bytes, fewer than 8 differ once in 10^40
            return Violation(demand="payer/nonce", actual=f"0x{nonce.hex()}")
    return None


def _ends_within(most_s: int, key: str) -> Test:
    def test(played: Purchase) -> Violation | None:
        for signed in played.signed.values():
            ends_s = signed.auth.valid_before - played.began_s - round(played.seconds)
            if ends_s > most_s:
                lasts = f"it can be used for {ends_s} s ({ends_s / DAY_S:.3g} days)"
                return Violation(demand=key, actual=lasts)
        return None

    return test


@demand("`accepted` is the offer of the payment", texts.explicit(texts.ACCEPTED))
def _accepted(played: Purchase) -> Violation | None:
    right = played.shop.right
    for said in played.payments_said:
        given = said.get("accepted")
        got = given if isinstance(given, dict) else {}
        wanted = {
            "scheme": right.scheme,
            "network": right.network,
            "amount": right.amount,
            "asset": right.asset,
            "payTo": right.pay_to,
        }
        wrong = {  # an address has two spellings
            key: got.get(key)
            for key, value in wanted.items()
            if str(got.get(key)).lower() != value.lower()
        }
        if wrong:
            return Violation(
                demand="payer/accepted", actual=f"{as_json(wrong)}, offered {as_json(wanted)}"
            )
    return None


ROWS = [
    case(
        "control/buys",
        demand(
            "A payer pays the price of an honest shop once, and shows the goods",
            texts.derived(
                texts.INTENT,
                texts.ONE_TRANSFER,
                so="the offer is within every bound of the task, so to buy is the intention, "
                "once, and nothing else",
            ),
        )(_paid_once_and_served),
        _random_nonce,
        demand(
            "An authorization ends within a day",
            texts.derived(
                texts.LIFETIME,
                texts.TIMEOUT,
                so="the offer allows 300 seconds; a window of days or years limits nothing",
            ),
            suffix="window-ends",
        )(_ends_within(DAY_S, "payer/window")),
        demand(
            "An authorization ends when the offer's time to pay does",
            texts.ours(
                texts.TIMEOUT,
                because="until the window ends, a refused payer cannot know whether it has paid",
            ),
            suffix="window-as-offered",
        )(_ends_within(300 + SLACK_S, "payer/window-as-offered")),
        is_control=True,
    )(Story()),
    case(
        "control/accepted",
        _accepted,
        absent=only([Dialect.V2], "only version 2 over HTTP repeats the offer in a header"),
    )(Story()),
]
