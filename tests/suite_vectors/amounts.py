"""The families of amounts and of offers."""

import runpy
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.suite_vectors.making import REFUSES, Maker, key, slug_of
from tests.suite_vectors.messages import offer
from x402sim.protocol.crypto import checksum
from x402sim.protocol.envelopes import differences
from x402sim.protocol.money import MAX_UINT256, parse_base, to_base
from x402sim.protocol.networks import BASE_SEPOLIA, NETWORKS
from x402sim.spec.ground import folder
from x402sim.suite import texts

BASE = 10_000
TOKENS = ("1", "0.01", "0.1", "1.25", "1000000", "0", "0.00", "1.10", "00.5", "123456789.123456")
DECIMALS = (0, 2, 6, 8, 18)
SPELLINGS = {
    "an empty text": "",
    "an exponent": "1e-2",
    "below zero": "-1",
    "a plus": "+1",
    "a comma": "1,5",
    "a space before": " 1",
    "hex": "0x10",
    "no whole part": ".5",
    "no digit after the point": "1.",
    "dollars": "$1",
    "words": "one",
    "an underscore": "1_000",
}
"""Prices that some readers take."""


def refused(read: Any, *given: Any) -> bool:
    """Tell whether our reader refuses."""
    try:
        read(*given)
    except (ValueError, TypeError):
        return True
    return False


def amounts() -> Maker:
    """Make amounts in every spelling of the judge's table, and conversions of tokens."""
    made, table = Maker("amounts"), runpy.run_path(str(folder("facilitator") / "spelling.py"))
    for value in (0, 1, 10, BASE, 2**53 + 1, 2**64, 2**128, MAX_UINT256):
        made.add(f"amount-{value}", f"An amount: {value}", "amount", {"text": str(value)},
                 {"base": str(parse_base(str(value)))}, texts.explicit(texts.REQUIRED_AMOUNT, texts.VALUE))  # fmt: skip
    grounds = {
        "NO_AMOUNT": texts.derived(texts.VALUE, texts.INVALID_PAYLOAD, so="a text that is no value of its field is malformed"),
        "LENIENT": texts.ours(texts.VALUE, texts.REQUIRED_AMOUNT, because="who reads it otherwise has another amount"),
        "OPEN": texts.silent(texts.VALUE, why="a text is asked for; its form is left open"),
    }  # fmt: skip
    for name, ground in grounds.items():
        for about, spelt in table[name].items():
            value = spelt(BASE)
            expect = None if name == "OPEN" else REFUSES
            assert isinstance(value, int) or refused(parse_base, value), about
            made.add(f"amount-{slug_of(about)}", f"An amount: {about}", "amount", {"text": value}, expect, ground)  # fmt: skip
    for decimals in DECIMALS:
        for text in TOKENS:
            _units(made, text, decimals)
    for name, text in SPELLINGS.items():
        _units(made, text, 6, name)
    return made


def _units(made: Maker, text: str, decimals: int, name: str = "") -> None:
    about = f"{text!r} tokens of {decimals} decimals"
    slug = f"units-{slug_of(name)}" if name else f"units-{decimals}-{slug_of(text)}"
    given = {"text": text, "decimals": decimals}
    if refused(to_base, text, decimals):
        ground = texts.silent(texts.REQUIRED_AMOUNT, why="no text says how a price in tokens is written, nor what becomes of a fraction of a base unit")  # fmt: skip
        return made.add(slug, about, "units", given, None, ground)
    so = f"a token of {decimals} decimals has 10^{decimals} atomic units"
    return made.add(slug, about, "units", given, {"base": str(to_base(text, decimals))}, texts.derived(texts.REQUIRED_AMOUNT, so=so))  # fmt: skip


# --- offers ----------------------------------------------------------------------------------


def accepted_in(accepts: list[dict[str, Any]], accepted: dict[str, Any]) -> int | None:
    """Return the index of the offer from which an accepted one does not differ."""
    return next((at for at, each in enumerate(accepts) if not [*differences(each, accepted)]), None)


def changes(one: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an accepted offer with one term changed."""
    for name, value in one.items():
        if name != "extra":
            other: Any = value + 1 if isinstance(value, int) else f"{value}0"
            other = checksum(key("another").address) if name in ("asset", "payTo") else other
            yield f"another {name}", {**one, name: {"scheme": "upto", "network": "eip155:8453"}.get(name, other)}  # fmt: skip
    for name in one["extra"]:
        yield f"another extra {name}", {**one, "extra": {**one["extra"], name: "another"}}
        rest = {field: each for field, each in one["extra"].items() if field != name}
        yield f"no extra {name}", {**one, "extra": rest}


def offers() -> Maker:
    """Make accepted offers, and what is like none of the offers."""
    made = Maker("offers")
    every = [offer(network, amount) for network in list(NETWORKS.values())[:3] for amount in (BASE, 2 * BASE)]  # fmt: skip
    ground = texts.derived(texts.ACCEPTED, texts.ACCEPTS, so="the chosen method is one of those offered")  # fmt: skip
    none = texts.derived(texts.ACCEPTED, texts.PARAMETERS, so="a method that was not offered was not accepted")  # fmt: skip
    for at, each in enumerate(every):
        made.add(f"offer-{at}", f"The offer at {at}", "match", {"accepts": every, "accepted": each}, {"index": accepted_in(every, each)}, ground)  # fmt: skip
    one = offer(BASE_SEPOLIA, BASE)
    shuffled = dict(reversed(one.items()))
    made.add("fields-in-another-order", "The fields in another order", "match", {"accepts": [one], "accepted": shuffled}, {"index": accepted_in([one], shuffled)}, ground)  # fmt: skip
    made.add("same-offer-twice", "The same offer twice: the first", "match", {"accepts": [one, one], "accepted": one}, {"index": 0}, texts.ours(texts.ACCEPTED, because="two equal offers are one method"))  # fmt: skip
    made.add("no-offers", "Nothing is offered", "match", {"accepts": [], "accepted": one}, {"index": None}, none)  # fmt: skip
    for about, changed in changes(one):
        assert accepted_in([one], changed) is None, about
        made.add(slug_of(about), f"The offer with {about}", "match", {"accepts": [one], "accepted": changed}, {"index": None}, none)  # fmt: skip
        two = offer(BASE_SEPOLIA, 3 * BASE)
        made.add(f"{slug_of(about)}-of-two", f"The second of two offers with {about}", "match", {"accepts": [two, one], "accepted": changed}, {"index": None}, none)  # fmt: skip
    why = texts.silent(texts.ACCEPTED, why="no text says how exactly the copy is the offer")
    for about, changed in {
        "the asset in small letters": {**one, "asset": one["asset"].lower()},
        "payTo in small letters": {**one, "payTo": one["payTo"].lower()},
        "an extra of its own": {**one, "extra": {**one["extra"], "memo": "mine"}},
        "a field of its own": {**one, "memo": "mine"},
        "a timeout as a text": {**one, "maxTimeoutSeconds": str(one["maxTimeoutSeconds"])},
        "an amount as a number": {**one, "amount": int(one["amount"])},
        "an amount with zeros in front": {**one, "amount": f"00{one['amount']}"},
    }.items():
        made.add(slug_of(about), f"The offer with {about}", "match", {"accepts": [one], "accepted": changed}, None, why)  # fmt: skip
    bare = msgspec.json.decode(msgspec.json.encode({**one, "extra": {}}))
    made.add("extra-added-to-none", "An extra where the offer has none", "match", {"accepts": [bare], "accepted": one}, None, why)  # fmt: skip
    return made
