"""Fields that are wrong on their own: signed so, only written so, or missing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from x402sim.protocol import x402
from x402sim.protocol.crypto import Address
from x402sim.protocol.networks import BASE, BASE_SEPOLIA
from x402sim.suite import texts
from x402sim.suite.facilitator.case import (
    Change,
    Demand,
    Tried,
    agreed,
    case,
    is_paid,
    left_open,
    must_refuse,
    only,
    refused,
    tried,
    tries,
    tries_each,
)
from x402sim.suite.facilitator.payment import STANDARD, VERSION_2, Dialect, Draft
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.truth import Observed, is_not_valid, observe
from x402sim.suite.verdict import Violation

THIEF = Address(bytes.fromhex("7b" * 20))
OTHER_TOKEN = "0x1111111111111111111111111111111111111111"  # noqa: S105 - an address
_ONE = {
    Dialect.V2: "version 2 says `exactly matches`: amount-more",
    Dialect.UPTO: "the signed amount is a maximum: part",
}
_OTHER_SCHEMES = (
    ("exact", "upto", "", {Dialect.UPTO: "the other scheme is exact: from-upto"}),
    ("upto", "exact", "from-upto", only([Dialect.UPTO], "the other scheme is upto")),
)
_CRONOS = "the dialect of Cronos has one copy of it"
_EMPTY: dict[str, Any] = {"null": None, "empty": "", "a list": [], "an object": {}, "true": True}


def _lacks(name: str) -> dict[str, Change]:
    """Return the changes that remove a field, or put a wrong value into the field."""

    def put(value: Any) -> Change:
        return lambda draft: draft.with_value(name, value)

    return {
        f"{name} is missing": lambda draft: draft.without(name),
        **{f"{name} is {word}": put(value) for word, value in _EMPTY.items()},
    }


def _another(draft: Draft) -> tuple[str, int]:
    """Return another network: its name in this dialect, and its chain."""
    other = BASE_SEPOLIA if draft.network == BASE else BASE
    return x402.network_name(draft.dialect.version, other), other.chain_id


def _other_network(draft: Draft) -> Draft:
    """Ask for a payment on another network, and sign for the other network's chain."""
    name, chain = _another(draft)
    domain = changed(draft.network.domain, chain_id=chain)
    return draft.demanding("network", name).signed(domain=domain)


def _named_network(draft: Draft) -> Draft:
    """Ask for a payment on another network, signed for this network's chain."""
    return draft.demanding("network", _another(draft)[0])


def _unknown_network(name: str) -> Change:
    return lambda draft: draft.demanding("network", name)


def _method(name: str) -> Change:
    def change(draft: Draft) -> Draft:
        extra = {**draft.get("requirements.extra"), "assetTransferMethod": name}
        return draft.demanding("extra", extra)

    return change


def _scheme(name: str) -> Change:
    return lambda draft: draft.demanding("scheme", name)


def _only_in(where: str, scheme: str) -> Change:
    part = "accepted" if where == "the payment" else "requirements"
    return lambda draft: draft.with_value(f"{part}.scheme", scheme)


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
        found.append(await tried(play, part, about, verified_as=draft))
    return found


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
    return replace(await observe(play), verified=verified)


_REQUIRED = (
    "the requirements are what a payment is compared with, and this field of them is required"
)
_SIGNED_FIELD = "without this field there is no authorization that anybody has signed"
ROWS = [
    case(
        "fields/amount-less",
        *must_refuse(
            "A payment of 1 base unit less than required is refused",
            texts.AMOUNT,
            texts.AMOUNT_V1,
        ),
    )(tries(lambda draft: draft.signed(value=draft.auth.value - 1))),
    case(
        "fields/amount-more",
        *must_refuse("A payment of 1 base unit more than required is refused", texts.AMOUNT),
        absent={
            **dict.fromkeys(
                (Dialect.V1, Dialect.CRONOS), "version 1 says `meets or exceeds`: amount-exceeds"
            ),
            Dialect.PERMIT2: "the text says `covers`: amount-exceeds",
            Dialect.UPTO: "at settle the signed amount is a maximum: verified alone",
        },
    )(tries(lambda draft: draft.signed(value=draft.auth.value + 1))),
    case(
        "fields/amount-more",
        Demand(
            title="A maximum of 1 base unit more than required is not valid",
            ground=texts.explicit(texts.UPTO_AMOUNT),
            test=is_not_valid,
        ),
        variant="verified-alone",
        absent=only([Dialect.UPTO], "verify and settle have the same amount"),
    )(_verified_for_less),
    case(
        "fields/part",
        Demand(
            title="A part of the signed maximum settles: what was used, or nothing",
            ground=texts.explicit(
                texts.PART, texts.UPTO_TRANSFER, texts.NOTHING_USED, texts.AMOUNT_TOLD
            ),
            test=_is_used_up_to,
        ),
        absent=only([Dialect.UPTO], "only `upto` settles a part of the signed amount"),
    )(_parts),
    case(
        "fields/amount-exceeds",
        left_open(
            "Does the facilitator accept 1 base unit more than required?",
            texts.AMOUNT_V1,
            why="the texts permit an excess, and demand no refusal",
        ),
        agreed(
            "An excess payment called valid settles the signed amount", texts.AMOUNT_V1, texts.CALLS
        ),
        absent=_ONE,
    )(tries(lambda draft: draft.signed(value=draft.auth.value + 1))),
    case(
        "fields/amount-zero",
        Demand(
            title="A payment of nothing is refused, though nothing is required",
            ground=texts.ours(
                texts.SAFETY,
                because="it is worth nothing, anybody can sign it without a token, and the "
                "relayer pays for each (SR5); but it is what was asked for",
            ),
            test=refused,
        ),
        absent={
            Dialect.CRONOS: "what the public facilitator of Cronos does is not documented",
            Dialect.UPTO: "who has used nothing pays nothing: part",
        },
    )(tries(lambda draft: draft.demanding("amount", "0").signed(value=0))),
    case(
        "fields/payee",
        *must_refuse(
            "A payment to another account than payTo is refused", texts.PARAMETER_MATCHING
        ),
    )(tries(lambda draft: draft.signed(to=THIEF))),
    case(
        "fields/payee",
        *must_refuse(
            "A payment to the shop is refused where another payee is required",
            texts.PARAMETER_MATCHING,
        ),
        variant="demanded",
    )(tries(lambda draft: draft.demanding("payTo", "0x" + THIEF.hex()))),
    case(
        "fields/asset-demanded",
        *must_refuse(
            "A payment in the token is refused where another token is required",
            texts.TOKEN_AND_NETWORK,
        ),
    )(tries(lambda draft: draft.demanding("asset", OTHER_TOKEN))),
    case(
        "fields/network",
        *must_refuse(
            "A payment on an unsupported network is refused",
            texts.TOKEN_AND_NETWORK,
            texts.INVALID_NETWORK,
        ),
    )(
        tries_each(
            {"signed for its chain": _other_network, "signed for this chain": _named_network}
        )
    ),
    case(
        "fields/network-unknown",
        *must_refuse("A payment on an unknown network is refused", texts.INVALID_NETWORK),
    )(
        tries_each(
            {
                name: _unknown_network(name)
                for name in ("solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1", "eip155:0", "nowhere")
            }
        )
    ),
    case(
        "fields/network-of-payment",
        *must_refuse(
            "A payment for another network than required is refused",
            texts.TOKEN_AND_NETWORK,
        ),
    )(tries(lambda draft: draft.with_value("accepted.network", _another(draft)[0]))),
    *(
        case(
            "fields/scheme",
            *must_refuse(
                "A payment in an unlisted scheme is refused",
                texts.PAIRS,
                texts.INVALID_SCHEME,
                so=f"it supports `{own}` explicitly, and another scheme means another thing",
            ),
            variant=variant,
            absent=absent,
        )(tries_each({name: _scheme(name) for name in (other, "deferred", "exactly")}))
        for own, other, variant, absent in _OTHER_SCHEMES
    ),
    *(
        case(
            "fields/scheme-of-payment",
            *must_refuse(
                "A payment in another scheme than the requirements' is refused",
                texts.PAIRS,
                texts.PARAMETER_MATCHING,
                so=f"one of the two has chosen `{other}`, and the other has not",
            ),
            variant=variant,
            absent=absent,
        )(
            tries_each(
                {
                    f"`{other}` in {where}": _only_in(where, other)
                    for where in ("the payment", "the requirements")
                }
            )
        )
        for _, other, variant, absent in _OTHER_SCHEMES
    ),
    case(
        "fields/version",
        *must_refuse("An unknown version is refused", texts.INVALID_VERSION),
    )(tries_each({f"x402Version {value}": _version(value) for value in (3, 0, -1, 99)})),
    case(
        "fields/version-form",
        left_open(
            "Does the facilitator accept a missing version, or two different versions?",
            texts.INVALID_VERSION,
            why="no text says which of the two counts",
        ),
    )(
        tries_each(
            {
                "as a text": lambda draft: _version(str(draft.dialect.version))(draft),
                "not in the request": lambda draft: draft.without("body.x402Version"),
                "not in the payment": lambda draft: draft.without("payment.x402Version"),
                "another in the request": lambda draft: draft.with_value(
                    "body.x402Version", 3 - draft.dialect.version
                ),
            }
        )
    ),
    *(
        case(
            "fields/lacks",
            *must_refuse(
                f"A payment without `{name}` is refused",
                texts.INVALID_PAYLOAD,
                texts.CALLS,
                so=_SIGNED_FIELD,
            ),
            variant=name.lower(),
        )(tries_each(_lacks(name)))
        for name in ("from", "to", "value", "validAfter", "validBefore", "nonce", "signature")
    ),
    *(
        case(
            "fields/lacks-requirements",
            *must_refuse(
                f"Requirements without {name.partition('.')[2]} are refused",
                texts.INVALID_REQUIREMENTS,
                so=_REQUIRED,
            ),
            variant=name.partition(".")[2].lower(),
        )(tries_each(_lacks(name)))
        for name in (
            "requirements.scheme",
            "requirements.network",
            "requirements.amount",
            "requirements.asset",
            "requirements.payTo",
        )
    ),
    case(
        "fields/timeout",
        left_open(
            "Does the facilitator accept an odd maxTimeoutSeconds?",
            why="the field is required; nothing that is compared depends on it",
        ),
    )(
        tries_each(
            {
                "missing": lambda draft: draft.without("requirements.maxTimeoutSeconds"),
                "0": lambda draft: draft.with_value("requirements.maxTimeoutSeconds", 0),
                "-1": lambda draft: draft.with_value("requirements.maxTimeoutSeconds", -1),
                "a text": lambda draft: draft.with_value("requirements.maxTimeoutSeconds", "300"),
            }
        )
    ),
    case(
        "fields/copies-differ",
        left_open(
            "Does the facilitator accept a different copy of the requirements?",
            texts.PARAMETER_MATCHING,
            why="the text speaks of the authorization only",
        ),
        agreed("With two different copies, a payment called valid settles as signed", texts.CALLS),
        absent=only(VERSION_2, "only version 2 repeats the requirements in the payment"),
    )(
        tries_each(
            {
                "accepted.payTo": lambda draft: draft.with_value(
                    "accepted.payTo", "0x" + THIEF.hex()
                ),
                "accepted.amount": lambda draft: draft.with_value("accepted.amount", "1"),
                "accepted.asset": lambda draft: draft.with_value("accepted.asset", OTHER_TOKEN),
                "accepted.extra": lambda draft: draft.with_value("accepted.extra", {"name": "x"}),
                "accepted.maxTimeoutSeconds": lambda draft: draft.with_value(
                    "accepted.maxTimeoutSeconds", 1
                ),
            }
        )
    ),
    case(
        "fields/unknown",
        Demand(
            title="Unknown fields do not stop a payment",
            ground=texts.ours(
                because="a later version of a client adds one, and every payment of it would "
                "be refused"
            ),
            test=is_paid,
        ),
    )(
        tries_each(
            {
                "in the request": lambda draft: draft.with_value("body.trace", "a1"),
                "in the payment": lambda draft: draft.with_value("payment.trace", "a1"),
                "in the requirements": lambda draft: draft.with_value("requirements.trace", "a1"),
            }
        )
    ),
    case(
        "fields/extension",
        Demand(
            title="An unknown extension does not stop a payment",
            ground=texts.ours(
                because="payers echo whatever a shop offers, as the text demands of them"
            ),
            test=is_paid,
        ),
        absent=only(VERSION_2, "extensions are of version 2"),
    )(
        tries_each(
            {
                "with an extension": lambda draft: draft.with_value(
                    "payment.extensions", {"new-thing": {"info": {"a": 1}, "schema": {}}}
                )
            }
        )
    ),
    case(
        "fields/method",
        left_open(
            "Does the facilitator accept a wrong name of the transfer method?",
            texts.METHOD,
            why="it binds who writes the requirements",
        ),
        agreed("With any transfer method, a payment called valid settles as signed", texts.CALLS),
        absent=only(STANDARD, "the dialect of Cronos has no `extra`"),
    )(tries_each({name: _method(name) for name in ("permit2", "erc7710", "nothing")})),
]
