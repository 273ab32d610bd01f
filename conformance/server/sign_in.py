"""If the 402 offers `sign-in-with-x`: a wallet that has paid gets in, and no other wallet."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.server.case import case, demand, told
from x402sim.suite.server.observed import Try, UnpaidTries
from x402sim.suite.server.payment import SIGN_IN, proof
from x402sim.suite.server.play import Headers, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.started import CLOCK
from x402sim.suite.verdict import Found, NotApplicable, Violation

V2_ONLY = {Dialect.V1: "extensions are of version 2"}
PHISHER = "bank.example"
STRANGER = 2
"""The account of the room that buys nothing."""


class NotLetIn(NotApplicable):
    """A wallet that has paid cannot sign in."""


async def _challenge(play: Play) -> dict[str, Any]:
    """Return the fields of a new challenge."""
    required = play.required(await play.ask())
    offered = required.get("extensions")
    found = offered.get(SIGN_IN) if isinstance(offered, dict) else None
    if not isinstance(found, dict) or not isinstance(found.get("info"), dict):
        raise NotApplicable(f"its 402 does not offer {SIGN_IN}")
    chains = [each for each in found.get("supportedChains", []) if isinstance(each, dict)]
    ours = [each for each in chains if str(each.get("chainId", "")).startswith("eip155:")]
    if not ours:
        raise NotApplicable("no wallet of an EVM chain can sign in")
    return {**found["info"], "chainId": ours[0]["chainId"], "type": ours[0].get("type", "eip191")}


async def _member(play: Play) -> tuple[Answer, int]:
    """Buy, and sign in; return the goods, and the price. Raises `NotLetIn` if the sign-in fails."""
    goods = await play.pay(payment := await play.draft())
    got = await play.ask(headers=[proof(await _challenge(play), play.room.payer)])
    if not play.is_goods(got, goods):
        raise NotLetIn(f"a wallet that has just paid is not let in: {got.how}")
    return goods, payment.auth.value


async def _signs_in(play: Play) -> str:
    try:
        await _member(play)
    except NotLetIn as why:
        return str(why)
    return "a wallet that has paid is let in"


Wrong = Callable[[Play, Mapping[str, Any]], Mapping[str, Headers]]


def _wrong(wrong: Wrong) -> Callable[[Play], Awaitable[UnpaidTries]]:
    """Return the play of wrong sign-ins, each with its own challenge."""

    async def play(it: Play) -> UnpaidTries:
        goods, price = await _member(it)
        found = []
        for about in wrong(it, await _challenge(it)):
            headers = wrong(it, await _challenge(it))[about]
            it.say(f"{about}:")
            found.append(Try(about, await it.ask(headers=headers)))
        return UnpaidTries(tries=found, goods=goods, price=price)

    return play


def _stranger(play: Play, fields: Mapping[str, Any]) -> Mapping[str, Headers]:
    payer, other = play.room.payer, play.room.world.wallets[STRANGER]
    return {
        "a wallet that has bought nothing": [proof(fields, other)],
        "the address of one that has, signed by another": [proof(fields, other, payer.address)],
    }


def _elsewhere(play: Play, fields: Mapping[str, Any]) -> Mapping[str, Headers]:
    there = {**fields, "domain": PHISHER, "uri": f"https://{PHISHER}/login"}
    payer = play.room.payer
    return {
        "signed for another site": [proof(there, payer)],
        "signed for another site, which Host names": [proof(there, payer), ("Host", PHISHER)],
        "signed for a URI of another site": [proof({**fields, "uri": there["uri"]}, payer)],
    }


def _when(ago_s: float) -> str:
    at = datetime.fromtimestamp(CLOCK.now_s(), UTC) - timedelta(seconds=ago_s)
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _times(play: Play, fields: Mapping[str, Any]) -> Mapping[str, Headers]:
    payer = play.room.payer
    old = {**fields, "issuedAt": _when(3600)}
    old.pop("expirationTime", None)
    return {
        "expired": [proof({**fields, "expirationTime": _when(60)}, payer)],
        "issued an hour ago": [proof(old, payer)],
        "issued in an hour": [
            proof({**fields, "issuedAt": _when(-3600), "expirationTime": _when(-7200)}, payer)
        ],
        "not valid before an hour has gone": [proof({**fields, "notBefore": _when(-3600)}, payer)],
    }


async def _replayed(play: Play) -> UnpaidTries:
    goods, price = await _member(play)
    header = proof(await _challenge(play), play.room.payer)
    if not play.is_goods(await play.ask(headers=[header]), goods):
        raise NotApplicable("a wallet that has paid is let in once")
    again = Try("the same proof twice", await play.ask(headers=[header]))
    return UnpaidTries(tries=[again], goods=goods, price=price)


def _is_not_let_in(play: Play, observed: UnpaidTries) -> Found:
    for each in observed.tries:
        if play.is_goods(each.answer, observed.goods):
            return Violation(
                demand="sign-in-proves-wallet",
                actual=f"{each.about}: {each.answer.how}",
                loss=play.tokens(observed.price, "served for nothing"),
            )
    return None


_case = partial(case, absent=V2_ONLY)
ROWS = [
    _case(
        "sign-in/member",
        demand(
            "Is a wallet let in after a payment?",
            texts.silent(texts.PAID_BEFORE, why="whom it lets in is a matter of the shop"),
        )(told),
    )(_signs_in),
    _case(
        "sign-in/stranger",
        demand(
            "A wallet is not let in without a payment, nor by another wallet's signature",
            texts.derived(
                texts.PAID_BEFORE,
                texts.NO_VALID_PAYMENT,
                so="who has not paid, and attaches no payment, is asked for one",
            ),
        )(_is_not_let_in),
    )(_wrong(_stranger)),
    _case(
        "sign-in/elsewhere",
        demand(
            "A signature for another site does not let in",
            texts.explicit(texts.SIGN_IN_DOMAIN, texts.URI),
        )(_is_not_let_in),
    )(_wrong(_elsewhere)),
    _case(
        "sign-in/times",
        demand(
            "An expired, old or not yet valid signature does not let in",
            texts.explicit(texts.ISSUED, texts.EXPIRATION, texts.NOT_BEFORE),
        )(_is_not_let_in),
    )(_wrong(_times)),
    _case(
        "sign-in/replayed",
        demand(
            "A proof lets in once",
            texts.ours(
                texts.SIGN_IN_NONCE,
                because="who has read a proof gets in by it as long as it lives",
            ),
        )(_is_not_let_in),
    )(_replayed),
]
