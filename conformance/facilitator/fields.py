"""Fields that are wrong on their own: signed so, only written so, or missing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from x402sim.protocol import x402
from x402sim.protocol.crypto import Address
from x402sim.protocol.networks import BASE, BASE_SEPOLIA
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import (
    Change,
    agreed,
    case,
    demand,
    is_paid,
    left_open,
    only,
    pays,
    put,
    refused,
    refuses,
    wants,
)
from x402sim.suite.facilitator.payment import RESOURCE, STANDARD, VERSION_2, Draft
from x402sim.suite.facilitator.play import Observed, Play, Tried
from x402sim.suite.facilitator.truth import is_not_valid
from x402sim.suite.verdict import Violation

THIEF = Address(bytes.fromhex("7b" * 20))
OTHER_TOKEN = "0x1111111111111111111111111111111111111111"  # noqa: S105 - an address
_OTHER_SCHEMES = (
    ("exact", "upto", "", {Dialect.UPTO: "the other scheme is exact: from-upto"}),
    ("upto", "exact", "from-upto", only([Dialect.UPTO], "the other scheme is upto")),
)
_EMPTY: dict[str, Any] = {"null": None, "empty": "", "a list": [], "an object": {}, "true": True}


def _lacks(name: str) -> dict[str, Change]:
    """Return the changes that remove a field, or put a wrong value into the field."""
    return {
        f"{name} is missing": lambda draft: draft.without(name),
        **{f"{name} is {word}": put(name, value) for word, value in _EMPTY.items()},
    }


def _one_more(draft: Draft) -> Draft:
    return draft.signed(value=draft.auth.value + 1)


def _another(draft: Draft) -> tuple[str, int]:
    """Return the name and the chain of another network."""
    other = BASE_SEPOLIA if draft.network == BASE else BASE
    return x402.network_name(draft.dialect.version, other), other.chain_id


def _other_network(draft: Draft) -> Draft:
    """Ask for a payment on another network, and sign for the other network's chain."""
    name, chain = _another(draft)
    domain = changed(draft.network.domain, chain_id=chain)
    return draft.demanding("network", name).signed(domain=domain)


def _method(name: str) -> Change:
    def change(draft: Draft) -> Draft:
        extra = {**draft.get("requirements.extra"), "assetTransferMethod": name}
        return draft.demanding("extra", extra)

    return change


def _version(value: Any) -> Change:
    def change(draft: Draft) -> Draft:
        return draft.with_value("body.x402Version", value).with_value("payment.x402Version", value)

    return change


_USED: dict[str, Callable[[int], int]] = {
    "one base unit": lambda _: 1,
    "all but one base unit": lambda base: base - 1,
    "nothing": lambda _: 0,
}


async def _parts(play: Play) -> list[Tried]:
    """Verify the maximum, and settle what was used, by a payment for each amount."""
    payer, found = await play.room.payer(), []
    for about, used in _USED.items():
        draft = await play.draft(payer)
        part = draft.using(used(draft.auth.value))
        found.append(await play.tried(part, about, verified_as=draft))
    return found


@demand(
    "A part of the signed maximum settles: what was used, or nothing",
    texts.explicit(texts.PART, texts.UPTO_TRANSFER, texts.NOTHING_USED, texts.AMOUNT_TOLD),
)
def _is_used_up_to(_: Play, observed: Sequence[Tried]) -> Violation | None:
    for each in observed:
        used, answer = int(each.draft.get("requirements.amount")), each.settled
        moved = [it for it in each.money.moved if it.sender == each.draft.auth.from_]
        hashes = [it.tx_hash for it in moved] or [""]
        is_part = [it.amount_base for it in moved] == [used] * bool(used)
        is_told = [answer.transaction] == hashes and answer.fields.get("amount") == str(used)
        if answer.succeeded and is_part and is_told:
            continue
        return Violation(
            expected=f"{used} of {each.draft.auth.value} base units settle, and amount tells it"
            if used
            else "success without a transfer, transaction empty, and amount 0",
            actual=f"{each.about}: verify: {each.verified.how}; settle: {answer.how}; "
            f"{each.money.summary}",
            demand="part-settles",
        )
    return None


async def _verified_for_less(play: Play) -> Observed:
    draft = await play.draft()
    verified = await play.verify(draft.signed(value=draft.auth.value + 1))
    return replace(await play.observe(), verified=verified)


LONG = "A report about the weather of tomorrow, hour by hour. " * 40


def _described(draft: Draft) -> Draft:
    if draft.dialect is Dialect.V2:
        return draft.with_value("payment.resource", {"url": RESOURCE, "description": LONG})
    return draft.with_value("requirements.description", LONG)


ROWS = [
    refuses(
        "fields/amount-less",
        "A payment of 1 base unit less than required is refused",
        texts.AMOUNT,
        texts.AMOUNT_V1,
        changes=lambda draft: draft.signed(value=draft.auth.value - 1),
    ),
    refuses(
        "fields/amount-more",
        "A payment of 1 base unit more than required is refused",
        texts.AMOUNT,
        changes=_one_more,
        absent={
            **dict.fromkeys(
                (Dialect.V1, Dialect.CRONOS), "version 1 says `meets or exceeds`: amount-exceeds"
            ),
            Dialect.PERMIT2: "the text says `covers`: amount-exceeds",
            Dialect.UPTO: "at settle the signed amount is a maximum: verified alone",
        },
    ),
    case(
        "fields/amount-more",
        demand(
            "A maximum of 1 base unit more than required is not valid",
            texts.explicit(texts.UPTO_AMOUNT),
        )(is_not_valid),
        variant="verified-alone",
        absent=only([Dialect.UPTO], "verify and settle have the same amount"),
    )(_verified_for_less),
    case(
        "fields/part",
        _is_used_up_to,
        absent=only([Dialect.UPTO], "only `upto` settles a part of the signed amount"),
    )(_parts),
    pays(
        "fields/amount-exceeds",
        left_open(
            "Does the facilitator accept 1 base unit more than required?",
            texts.AMOUNT_V1,
            why="the texts permit an excess, and demand no refusal",
        ),
        agreed(
            "An excess payment called valid settles the signed amount", texts.AMOUNT_V1, texts.CALLS
        ),
        changes=_one_more,
        absent={
            Dialect.V2: "version 2 says `exactly matches`: amount-more",
            Dialect.UPTO: "the signed amount is a maximum: part",
        },
    ),
    pays(
        "fields/amount-zero",
        demand(
            "A payment of nothing is refused, though nothing is required",
            texts.ours(
                texts.SAFETY,
                because="it is worth nothing, anybody can sign it without a token, and the "
                "relayer pays for each; but it is what was asked for",
            ),
        )(refused),
        changes=lambda draft: draft.demanding("amount", "0").signed(value=0),
        absent={
            Dialect.CRONOS: "what the public facilitator of Cronos does is not documented",
            Dialect.UPTO: "who has used nothing pays nothing: part",
        },
    ),
    refuses(
        "fields/payee",
        "A payment to another account than payTo is refused",
        texts.PARAMETER_MATCHING,
        changes=lambda draft: draft.signed(to=THIEF),
    ),
    refuses(
        "fields/payee",
        "A payment to the shop is refused where another payee is required",
        texts.PARAMETER_MATCHING,
        changes=wants("payTo", "0x" + THIEF.hex()),
        variant="demanded",
    ),
    refuses(
        "fields/asset-demanded",
        "A payment in the token is refused where another token is required",
        texts.TOKEN_AND_NETWORK,
        changes=wants("asset", OTHER_TOKEN),
    ),
    refuses(
        "fields/network",
        "A payment on an unsupported network is refused",
        texts.TOKEN_AND_NETWORK,
        texts.INVALID_NETWORK,
        changes={
            "signed for its chain": _other_network,
            "signed for this chain": lambda draft: draft.demanding("network", _another(draft)[0]),
        },
    ),
    refuses(
        "fields/network-unknown",
        "A payment on an unknown network is refused",
        texts.INVALID_NETWORK,
        changes={
            name: wants("network", name)
            for name in ("solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1", "eip155:0", "nowhere")
        },
    ),
    refuses(
        "fields/network-of-payment",
        "A payment for another network than required is refused",
        texts.TOKEN_AND_NETWORK,
        changes=lambda draft: draft.with_value("accepted.network", _another(draft)[0]),
    ),
    *(
        refuses(
            "fields/scheme",
            "A payment in an unlisted scheme is refused",
            texts.PAIRS,
            texts.INVALID_SCHEME,
            so=f"it supports `{own}` explicitly, and another scheme means another thing",
            changes={name: wants("scheme", name) for name in (other, "deferred", "exactly")},
            variant=variant,
            absent=absent,
        )
        for own, other, variant, absent in _OTHER_SCHEMES
    ),
    *(
        refuses(
            "fields/scheme-of-payment",
            "A payment in another scheme than the requirements' is refused",
            texts.PAIRS,
            texts.PARAMETER_MATCHING,
            so=f"one of the two has chosen `{other}`, and the other has not",
            changes={
                f"`{other}` in the payment": put("accepted.scheme", other),
                f"`{other}` in the requirements": put("requirements.scheme", other),
            },
            variant=variant,
            absent=absent,
        )
        for _, other, variant, absent in _OTHER_SCHEMES
    ),
    refuses(
        "fields/version",
        "An unknown version is refused",
        texts.INVALID_VERSION,
        changes={f"x402Version {value}": _version(value) for value in (3, 0, -1, 99)},
    ),
    pays(
        "fields/version-form",
        left_open(
            "Does the facilitator accept a missing version, or two different versions?",
            texts.INVALID_VERSION,
            why="no text says which of the two counts",
        ),
        changes={
            "as a text": lambda draft: _version(str(draft.dialect.version))(draft),
            "not in the request": lambda draft: draft.without("body.x402Version"),
            "not in the payment": lambda draft: draft.without("payment.x402Version"),
            "another in the request": lambda draft: draft.with_value(
                "body.x402Version", 3 - draft.dialect.version
            ),
        },
    ),
    *(
        refuses(
            "fields/lacks",
            f"A payment without `{name}` is refused",
            texts.INVALID_PAYLOAD,
            texts.CALLS,
            so="without this field there is no authorization that anybody has signed",
            changes=_lacks(name),
            variant=name.lower(),
        )
        for name in ("from", "to", "value", "validAfter", "validBefore", "nonce", "signature")
    ),
    *(
        refuses(
            "fields/lacks-requirements",
            f"Requirements without {name} are refused",
            texts.INVALID_REQUIREMENTS,
            so="the requirements are what a payment is compared with, and this field of them is "
            "required",
            changes=_lacks(f"requirements.{name}"),
            variant=name.lower(),
        )
        for name in ("scheme", "network", "amount", "asset", "payTo")
    ),
    pays(
        "fields/copies-differ",
        left_open(
            "Does the facilitator accept a different copy of the requirements?",
            texts.PARAMETER_MATCHING,
            why="the text speaks of the authorization only",
        ),
        agreed("With two different copies, a payment called valid settles as signed", texts.CALLS),
        changes={
            name: put(name, value)
            for name, value in {
                "accepted.payTo": "0x" + THIEF.hex(),
                "accepted.amount": "1",
                "accepted.asset": OTHER_TOKEN,
                "accepted.extra": {"name": "x"},
                "accepted.maxTimeoutSeconds": 1,
            }.items()
        },
        absent=only(VERSION_2, "only version 2 repeats the requirements in the payment"),
    ),
    pays(
        "fields/unknown",
        demand(
            "Unknown fields do not stop a payment",
            texts.ours(
                because="a later version of a client adds one, and every payment of it would "
                "be refused"
            ),
        )(is_paid),
        changes={
            "in the request": put("body.trace", "a1"),
            "in the payment": put("payment.trace", "a1"),
            "in the requirements": put("requirements.trace", "a1"),
        },
    ),
    pays(
        "fields/extension",
        demand(
            "An unknown extension does not stop a payment",
            texts.ours(because="payers echo whatever a shop offers, as the text demands of them"),
        )(is_paid),
        changes={
            "with an extension": put(
                "payment.extensions", {"new-thing": {"info": {"a": 1}, "schema": {}}}
            )
        },
        absent=only(VERSION_2, "extensions are of version 2"),
    ),
    pays(
        "fields/method",
        left_open(
            "Does the facilitator accept a wrong name of the transfer method?",
            texts.METHOD,
            why="it binds who writes the requirements",
        ),
        agreed("With any transfer method, a payment called valid settles as signed", texts.CALLS),
        changes={name: _method(name) for name in ("permit2", "erc7710", "nothing")},
        absent=only(STANDARD, "the dialect of Cronos has no `extra`"),
    ),
    pays(
        "fields/description-long",
        demand(
            "A good payment settles for goods described in two thousand characters",
            texts.ours(
                texts.DESCRIBED,
                because="a hosted facilitator refuses more than 500, and its shops lose sales "
                "for a word too many (x402-foundation/x402#2832)",
            ),
        )(is_paid),
        changes=_described,
    ),
]
