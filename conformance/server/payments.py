"""Payments wrong in one thing, and headers without a payment: nothing is served or charged."""

import base64
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.protocol import x402
from x402sim.protocol.crypto import PrivateKey, checksum, parse_address, to_hex
from x402sim.protocol.eip3009 import Domain
from x402sim.protocol.permit2_payments import SPONSORED_PERMIT
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.money import Transfer
from x402sim.suite.row import only
from x402sim.suite.server.case import SERVED_ONLY_IF_SETTLED, Demand, case, demand, is_blamed
from x402sim.suite.server.double import SETTLE, VERIFY, Call, Go, Twist
from x402sim.suite.server.payment import Payment, offers_in
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, Inconclusive, NotApplicable, Violation
from x402sim.suite.wire import Reply, as_json
from x402sim.text.words import counted

_BY_PERMIT2 = only([Dialect.PERMIT2, Dialect.UPTO], "EIP-3009 needs no allowance")
V2_ONLY = {Dialect.V1: "a payment of version 1 does not repeat what was offered"}
THIEF = checksum(PrivateKey(b"\x09" * 32).address)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    "paid",
    [],
    {},
    {"x402Version": 2},
    {"x402Version": 2, "accepted": None, "payload": None},
    {"x402Version": 2, "accepted": [], "payload": []},
    {"x402Version": 2, "accepted": {}, "payload": {"authorization": None}},
    {"x402Version": 1, "scheme": "exact", "network": "base-sepolia", "payload": 1},
    {"x402Version": 1, "scheme": None, "network": None, "payload": {}},
    {"x402Version": "two", "payload": {}},
)
HEADERS = {
    "is empty": "",
    "is no base64": "%%%",
    "is a word": "paid",
    "is base64 of bytes": base64.b64encode(b"\xff\xfe\x00\x01").decode(),
    "is base64 of no JSON": base64.b64encode(b"{").decode(),
    "is JSON, not base64": json.dumps({"x402Version": 2}),
    **{f"is base64 of {json.dumps(value)}": x402.to_base64(value) for value in _VALUES},
    "is deep": base64.b64encode(b"[" * 3000 + b"]" * 3000).decode(),
    "has 6000 characters of nothing": "A" * 6000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The answer to a wrong payment, and the transfers."""

    about: str
    payment: Payment | None
    answer: Answer
    moved: tuple[Transfer, ...]
    asked: Sequence[Call] = ()
    """The calls of the facilitator."""

    @property
    def is_error(self) -> bool:
        """Whether the answer is a 5xx or missing, without word of the facilitator's error."""
        is_5xx = self.answer.is_server_error and not is_blamed(self.answer, self.asked)
        return not self.answer.status or is_5xx


async def _refused(
    play: Play, about: str, asking: Awaitable[Answer], payment: Payment | None = None
) -> Refusal:
    """Send a wrong payment, and return the answer, the transfers and the facilitator's calls."""
    calls = len(play.double.calls)
    answer = await asking
    moved = () if payment is None else tuple(await play.moved(payment))
    asked = play.double.calls[calls:]
    return Refusal(about=about, payment=payment, answer=answer, moved=moved, asked=asked)


OTHER_TOKEN = checksum(PrivateKey(b"\x0a" * 32).address)
OTHER_CHAIN = {1: "base", 2: "eip155:8453"}


def _settles_others(offered: Collection[str]) -> Twist:
    """Return a twist that settles another token, or on a chain that is not `offered`.

    A facilitator of many chains does so if it is asked to. The server has asked for what the
    payment names, and not for what it sells.
    """

    async def twist(call: Call, _: Go) -> Reply | None:
        asset, network = (call.at("paymentRequirements", name) for name in ("asset", "network"))
        is_elsewhere = network in OTHER_CHAIN.values() and network not in offered
        if str(asset).lower() != OTHER_TOKEN.lower() and not is_elsewhere:
            return None
        said = {"isValid": True, "success": True, "transaction": "0x" + "ab" * 32}
        named = {"network": network, "payer": call.payer}
        return as_json(said | named) if call.path in (VERIFY, SETTLE) else None

    return twist


Changes = Callable[[Play, Payment], Mapping[str, Payment]]


def refuses(changes: Changes) -> Callable[[Play], Awaitable[list[Refusal]]]:
    """Return the play of wrong payments, each in a request."""

    async def play(it: Play) -> list[Refusal]:
        """A payer sends one wrong payment after the other, each changed in another way."""
        names, found = list(changes(it, await it.draft())), []
        offers = [each for answer in it.answers for each in offers_in(it.dialect, answer)]
        others = _settles_others([str(each.get("network")) for each in offers])
        with suppress(Inconclusive):  # known goods show themselves in a refusal
            await it.goods()
        for about in names:  # a new payment for each: servers keep a nonce with its first change
            payment = changes(it, await it.draft())[about]
            it.say(f"{about}:")
            with it.double.twisted(others):
                found.append(await _refused(it, about, it.pay(payment), payment))
            if it.is_silent:
                break
        return found

    return play


def not_served(play: Play, observed: list[Refusal]) -> Found:
    """Find a payment that was served without the price paid to the shop.

    A server that goes by the signed fields alone need not read the rest of a payment.
    """
    for each in observed:
        if each.answer.is_sale or play.has_goods(each.answer):
            offer = each.payment.offer if each.payment else {}
            price, to = int(offer.get(play.dialect.amount, 0)), str(offer.get("payTo")).lower()
            paid = [(moved.amount_base, to_hex(moved.to)) for moved in each.moved]
            if play.dialect is Dialect.UPTO:  # the price is a maximum
                paid = [(max(base, price), payee) for base, payee in paid]
            if paid == [(price, to)]:
                continue
            return Violation(
                demand="wrong-buys-nothing",
                actual=f"{each.about}: {each.answer.how}; {counted(len(each.moved), 'transfer')}",
                loss=play.tokens(price, "served for less than the price") if price else None,
            )
    return None


def not_charged(play: Play, observed: list[Refusal]) -> Found:
    """Find a refused payment that moved money."""
    for each in observed:
        if each.moved and not each.answer.is_2xx:
            base = sum(moved.amount_base for moved in each.moved)
            return Violation(
                demand="refused-moves-nothing",
                actual=f"{each.about}: {each.answer.how}; {counted(len(each.moved), 'transfer')}",
                loss=play.tokens(base, "charged for a payment that was refused"),
            )
    return None


def is_answer(_: Play, observed: list[Refusal]) -> Found:
    """Find an answer that is missing, or a 5xx."""
    failed: dict[str, list[str]] = {}
    for each in observed:
        if each.is_error:
            failed.setdefault(each.answer.how, []).append(each.about)
    if not failed:
        return None
    return Violation(
        demand="wrong-payment-is-4xx",
        actual="; ".join(f"{', '.join(abouts)}: {how}" for how, abouts in failed.items()),
    )


def _is_400_or_402(_: Play, observed: list[Refusal]) -> Found:
    other = [
        f"{each.about}: {each.answer.status}"
        for each in observed
        if each.answer.status not in (400, 402) and not each.answer.is_server_error
    ]
    return "; ".join(other) or None


def _demands(title: str, *, is_header: bool = False) -> list[Demand]:
    found = [
        demand(
            f"{title}: the server serves nothing",
            texts.derived(
                texts.NO_VALID_PAYMENT, texts.PARAMETERS, so="what is not valid buys nothing"
            ),
        )(not_served),
        demand(
            f"{title}: nothing is charged",
            texts.derived(
                texts.STATUS_FAILED, texts.INTENT, so="a payment that is refused does not move"
            ),
            suffix="charged",
        )(not_charged),
        demand(
            f"{title}: the answer is no 5xx",
            texts.derived(
                texts.STATUS_INVALID,
                texts.STATUS_FAILED,
                texts.STATUS_SERVER,
                so="there is a status for a payment that is wrong, and a server's error is another",
            ),
            suffix="answer",
        )(is_answer),
    ]
    if is_header:  # a header without a signature can move nothing
        del found[1]
        found.append(
            demand(
                f"{title}: the status",
                texts.silent(
                    texts.STATUS_INVALID,
                    texts.STATUS_FAILED,
                    why="the table has 400 for what is malformed and 402 for what fails to verify, "
                    "and does not say which of both a header is",
                ),
                suffix="status",
            )(_is_400_or_402)
        )
    return found


def _served_or_not(play: Play, observed: list[Refusal]) -> str:
    return "taken" if observed[0].answer.is_2xx else f"refused with {observed[0].answer.status}"


def _is_one_for_the_other(play: Play, observed: list[Refusal]) -> Found:
    """Find a charge without goods, or goods without a charge."""
    return not_charged(play, observed) or not_served(play, observed)


def _of_other(title: str) -> list[Demand]:
    return [
        demand(f"{title}: no charge without goods", SERVED_ONLY_IF_SETTLED)(_is_one_for_the_other),
        demand(
            f"{title}: the answer is no 5xx",
            texts.derived(
                texts.STATUS_INVALID,
                texts.STATUS_FAILED,
                texts.STATUS_SERVER,
                so="a server that does not take it has 400 or 402 for it; a 500 says that the "
                "server broke, and anybody can send this header",
            ),
            suffix="answer",
        )(is_answer),
        demand(
            f"{title}: accepted or refused?",
            texts.silent(texts.REQUIRED, why="nothing forbids to read it"),
            suffix="taken",
        )(_served_or_not),
    ]


def _less(play: Play, payment: Payment) -> Mapping[str, Payment]:
    value = payment.auth.value
    return {
        "one base unit": payment.signed(value=1),
        "one base unit less": payment.signed(value=value - 1),
        "nothing": payment.signed(value=0),
    }


def _accepted_less(play: Play, payment: Payment) -> Mapping[str, Payment]:
    cheap = payment.signed(value=1).with_value("accepted.amount", "1")
    return {"signed for 1, and the copy of the offer says 1": cheap}


def _another_payee(play: Play, payment: Payment) -> Mapping[str, Payment]:
    paid = payment.signed(to=PrivateKey(b"\x09" * 32).address)
    itself = payment.signed(to=payment.wallet.address_bytes)
    found = {"signed for another account": paid, "signed for the payer itself": itself}
    if play.dialect.version == 2:
        found["and the copy of the offer names it"] = paid.with_value("accepted.payTo", THIEF)
        found["and it names the payer"] = itself.with_value(
            "accepted.payTo", payment.wallet.address
        )
    return found


def _another_token(play: Play, payment: Payment) -> Mapping[str, Payment]:
    domain = payment.domain
    other = parse_address(OTHER_TOKEN)
    fake = payment.signed(domain=Domain(domain.name, domain.version, domain.chain_id, other))
    found = {"signed for another token": fake}
    if play.dialect.version == 2:
        found["and the copy of the offer names it"] = fake.with_value("accepted.asset", OTHER_TOKEN)
    return found


def _another_chain(play: Play, payment: Payment) -> Mapping[str, Payment]:
    own = payment.domain
    signed = payment.signed(domain=Domain(own.name, own.version, 8453, own.verifying_contract))
    where = "accepted.network" if play.dialect.version == 2 else "network"
    name = OTHER_CHAIN[play.dialect.version]
    return {
        "signed for another chain": signed,
        "and it names that chain": signed.with_value(where, name),
        "named for another chain, and signed for ours": payment.with_value(where, name),
    }


def _another_scheme(play: Play, payment: Payment) -> Mapping[str, Payment]:
    where = "accepted.scheme" if play.dialect.version == 2 else "scheme"
    other = "exact" if play.dialect is Dialect.UPTO else "upto"
    return {f"it names the scheme {other}": payment.with_value(where, other)}


def _forged(play: Play, payment: Payment) -> Mapping[str, Payment]:
    other = Wallet("0x" + "0b" * 32)
    signature = payment.body["payload"]["signature"]
    flipped = signature[:-4] + ("0" if signature[-4] != "0" else "1") + signature[-3:]
    return {
        "signed by somebody else": payment.with_value(
            "payload.signature",
            replace(payment, wallet=other).signed().body["payload"]["signature"],
        ),
        "one digit of the signature is another": payment.with_value("payload.signature", flipped),
        "the signature is 0x": payment.with_value("payload.signature", "0x"),
        "the amount was changed after signing": payment.with_value(
            "payload.authorization.value", "1"
        ),
    }


def _windows(play: Play, payment: Payment) -> Mapping[str, Payment]:
    now_s = payment.auth.valid_after + 600
    return {
        "expired": payment.signed(valid_before=now_s - 5),
        "not yet valid": payment.signed(valid_after=now_s + 3600, valid_before=now_s + 7200),
    }


def _poor(play: Play, payment: Payment) -> Mapping[str, Payment]:
    poor = Wallet("0x" + "0c" * 32)
    empty = replace(payment, wallet=poor).signed(from_=poor.address_bytes)
    return {"the payer has nothing": empty}


def _unsaid(play: Play, payment: Payment) -> Mapping[str, Payment]:
    names = ["payload", "payload.authorization", "payload.signature", "payload.authorization.nonce"]
    names += ["accepted"] if play.dialect.version == 2 else ["scheme", "network"]
    found = {f"{name} is missing": payment.with_value(name, None) for name in names}
    found["payload is a text"] = payment.with_value("payload", "paid")
    found["x402Version is 3"] = payment.with_value("x402Version", 3)
    found["x402Version is a text"] = payment.with_value("x402Version", "one")
    return found


def _as_the_other(play: Play, payment: Payment) -> Mapping[str, Payment]:
    other = Dialect.V1 if play.dialect.version == 2 else Dialect.V2
    named: dict[str, Any] = {
        "scheme": x402.SCHEME,
        "network": x402.network_name(other.version, play.room.network),
    }
    if other is Dialect.V2:
        amount = {"amount": payment.offer[play.dialect.amount]}
        named = {"accepted": dict(payment.offer) | named | amount}
    body = {"x402Version": other.version, **named, "payload": payment.body["payload"]}
    name = play.dialect.payment_header
    return {f"a payment of version {other.version} in {name}": replace(payment, body=body)}


_WRONG: dict[str, tuple[str, Changes]] = {
    "amount": ("Signed for less", _less),
    "payee": ("Signed for another account", _another_payee),
    "token": ("Signed for another token", _another_token),
    "chain": ("Another chain", _another_chain),
    "scheme": ("Another scheme", _another_scheme),
    "signature": ("A signature by another account than the payer", _forged),
    "window": ("Expired, or not yet valid", _windows),
    "balance": ("A payer without money", _poor),
    "fields": ("A payment with a part missing", _unsaid),
}


@case("header/malformed", *_demands("A malformed payment header", is_header=True))
async def _headers(play: Play) -> list[Refusal]:
    found, told = [], str(play.receipt(await play.goods()).get("transaction"))
    for what, text in ({"is the hash of another's payment": told} | HEADERS).items():
        about = f"a header that {what}"
        sent = [(play.dialect.payment_header, text)]
        found.append(await _refused(play, about, play.ask(headers=sent, about=about)))
        if play.is_silent:
            break
    return found


@case("header/other", *_of_other("A payment in the other version's header"))
async def _in_the_other_header(play: Play) -> list[Refusal]:
    payment = await play.draft()
    other = x402.PAYMENT_HEADERS[2 if play.dialect.version == 1 else 1]
    asking = play.ask(headers=[(other, payment.text)])
    return [await _refused(play, f"in {other}", asking, payment)]


@demand(
    "A payer without an allowance for Permit2 is told 412, and the word",
    texts.ours(
        texts.PRECONDITION,
        because="it says what to do: approve, and send the payment again. The text is of who "
        "verifies; the HTTP transport knows 402 alone, and so do the public libraries",
    ),
    suffix="allowance",
)
def _is_412(_: Play, observed: list[Refusal]) -> Found:
    (each,) = observed
    if each.answer.status == 412 or not each.answer.status:
        return None
    return Violation(demand="missing-allowance-is-412", actual=each.answer.how)


@case(
    "payment/balance",
    *_demands("A payer without an allowance for Permit2"),
    _is_412,
    variant="allowance",
    absent=_BY_PERMIT2,
)
async def _unallowed(play: Play) -> list[Refusal]:
    payment = await play.draft()
    if SPONSORED_PERMIT in (payment.body.get("extensions") or {}):
        raise NotApplicable(f"it offers {SPONSORED_PERMIT}, which needs no allowance")
    await play.room.allow(payment.auth.from_, 0)
    return [await _refused(play, "no allowance", play.pay(payment), payment)]


ROWS = [
    *(
        case(f"payment/{slug}", *_demands(title))(refuses(changes))
        for slug, (title, changes) in _WRONG.items()
    ),
    case(
        "payment/accepted", *_demands("The copy of the offer names another price"), absent=V2_ONLY
    )(refuses(_accepted_less)),
    case("header/version", *_of_other("A payment written in the other version"))(
        refuses(_as_the_other)
    ),
]
