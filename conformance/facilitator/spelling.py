"""Values in every spelling that JSON, Unicode and the parsers of languages allow.

The signed values are always the same; only their text differs. A spelling that is no value in any
language must be refused; a spelling that some languages accept may mean another value to the shop.
"""

from collections.abc import Callable
from typing import Any

from x402sim.protocol.crypto import keccak256, to_hex
from x402sim.suite import texts
from x402sim.suite.facilitator.case import (
    Change,
    FacilitatorRow,
    agreed,
    demand,
    is_paid,
    left_open,
    only,
    pays,
    put,
    refused,
    refuses,
)
from x402sim.suite.facilitator.payment import STANDARD, Draft

NO_AMOUNT: dict[str, Callable[[int], Any]] = {
    "a fraction": lambda base: f"{base}.5",
    "below zero": lambda base: f"-{base}",
    "words": lambda _: "ten thousand",
    "2^256": lambda _: str(2**256),
    "10^400": lambda _: "1" + "0" * 400,
    "NaN": lambda _: "NaN",
    "Infinity": lambda _: "Infinity",
}
"""Spellings that are no amount in any language, or no amount of base units."""
LENIENT: dict[str, Callable[[int], Any]] = {
    "full-width digits": lambda base: "".join(chr(0xFF10 + int(d)) for d in str(base)),
    "Arabic digits": lambda base: "".join(chr(0x0660 + int(d)) for d in str(base)),
    "an underscore": lambda base: f"{str(base)[0]}_{str(base)[1:]}",
    "a comma": lambda base: f"{base:,}",
    "hex": lambda base: hex(base),
    "binary": lambda base: bin(base),
    "an exponent": lambda _: "1e4",
    "a point": lambda base: f"{base}.0",
    "a plus": lambda base: f"+{base}",
    "a space before": lambda base: f" {base}",
    "a line break behind": lambda base: f"{base}\n",
    "a NUL behind": lambda base: f"{base}\0",
    "a letter behind": lambda base: f"{base}n",
}
"""Spellings that are an amount in some language."""
OPEN: dict[str, Callable[[int], Any]] = {
    "a number of JSON": lambda base: base,
    "zeros in front": lambda base: f"00{base}",
}


def _signed_value(spelt: Callable[[int], Any]) -> Change:
    return lambda draft: draft.with_value("value", spelt(draft.auth.value))


def _required(spelt: Callable[[int], Any]) -> Change:
    return lambda draft: draft.demanding("amount", spelt(draft.auth.value))


def _both(spelt: Callable[[int], Any]) -> Change:
    return lambda draft: _required(spelt)(_signed_value(spelt)(draft))


def _lenient(
    name: str, spelt_in: Callable[[Callable[[int], Any]], Change], what: str
) -> FacilitatorRow:
    return pays(
        f"spelling/{name}",
        demand(
            f"{what} in a spelling known to only some parsers is refused",
            texts.ours(
                texts.VALUE,
                texts.REQUIRED_AMOUNT,
                because="who reads it otherwise has another amount: shops, indexes and caches "
                "compare these texts (measured: official facilitators take some of them)",
            ),
        )(refused),
        changes={each: spelt_in(how) for each, how in LENIENT.items()},
    )


def _lower(draft: Draft) -> Draft:
    return (
        draft.with_value("from", draft.get("from").lower())
        .with_value("to", draft.get("to").lower())
        .demanding("payTo", draft.get("requirements.payTo").lower())
        .demanding("asset", draft.get("requirements.asset").lower())
    )


def _upper(text: str) -> str:
    return "0x" + text[2:].upper()


_ADDRESSES: dict[str, Callable[[str], str]] = {
    "39 digits": lambda text: text[:-1],
    "41 digits": lambda text: text + "0",
    "no hex": lambda text: text[:-1] + "g",
    "words": lambda _: "shop.eth",
    "a space behind": lambda text: text + " ",
    "64 digits": lambda text: "0x" + "0" * 24 + text[2:],
}


def _wrong_address(name: str) -> dict[str, Change]:
    def put(spelt: Callable[[str], str]) -> Change:
        def change(draft: Draft) -> Draft:
            text = spelt(draft.get(name))
            if name.startswith("requirements."):
                return draft.demanding(name.partition(".")[2], text)
            return draft.with_value(name, text)

        return change

    return {each: put(spelt) for each, spelt in _ADDRESSES.items()}


_NONCES: dict[str, Callable[[bytes], Any]] = {
    "31 bytes": lambda nonce: to_hex(nonce[1:]),
    "33 bytes": lambda nonce: to_hex(nonce + b"\0"),
    "an odd number of digits": lambda nonce: to_hex(nonce)[:-1],
    "no hex": lambda nonce: to_hex(nonce)[:-1] + "g",
    "a number": lambda nonce: int.from_bytes(nonce),
}
_TIMES: dict[str, tuple[str, Any]] = {
    "validBefore below zero": ("validBefore", "-1"),
    "validAfter below zero": ("validAfter", "-1"),
    "validBefore of 2^256": ("validBefore", str(2**256)),
    "validBefore in words": ("validBefore", "tomorrow"),
    "validBefore as a date": ("validBefore", "2031-01-01T00:00:00Z"),
    "validAfter as a fraction": ("validAfter", "0.5"),
}


def _nonce(spelt: Callable[[bytes], Any]) -> Change:
    return lambda draft: draft.with_value("nonce", spelt(draft.auth.nonce))


def _zero(place: str) -> Change:
    """Return the change of a payment's nonce until the nonce, r or s begins with a zero byte."""

    def change(draft: Draft) -> Draft:
        for number in range(10_000):
            nonce = keccak256(draft.auth.nonce + number.to_bytes(2))
            draft = draft.signed(nonce=bytes(1) + nonce[1:] if place == "nonce" else nonce)
            if place == "nonce" or not draft.signature[{"r": 0, "s": 32}[place]]:
                return draft
        raise AssertionError

    return change


_MALFORMED = "a text that is no value of its field is malformed, whatever was signed"
ROWS = [
    refuses(
        "spelling/no-amount",
        "A malformed amount is refused",
        texts.VALUE,
        texts.INVALID_PAYLOAD,
        changes={each: _both(spelt) for each, spelt in NO_AMOUNT.items()},
        so=_MALFORMED,
    ),
    refuses(
        "spelling/no-amount",
        "Requirements with a malformed amount are refused",
        texts.REQUIRED_AMOUNT,
        texts.INVALID_REQUIREMENTS,
        changes={each: _required(spelt) for each, spelt in NO_AMOUNT.items()},
        so=_MALFORMED,
        variant="required",
    ),
    _lenient("value", _signed_value, "A signed amount"),
    _lenient("amount", _required, "A required amount"),
    pays(
        "spelling/amount-open",
        left_open(
            "Does the facilitator accept an amount as a number, or with leading zeros?",
            texts.VALUE,
            why="a text is asked for; its form is left open",
        ),
        agreed(
            "In any spelling of the amount, a payment called valid settles as signed", texts.CALLS
        ),
        changes={each: _both(spelt) for each, spelt in OPEN.items()},
    ),
    *(
        refuses(
            "spelling/no-address",
            f"`{name.rpartition('.')[2]}` with a malformed address is refused",
            texts.INVALID_PAYLOAD,
            texts.INVALID_REQUIREMENTS,
            changes=_wrong_address(name),
            so=_MALFORMED,
            variant=name.rpartition(".")[2].lower(),
        )
        for name in ("from", "to", "requirements.payTo", "requirements.asset")
    ),
    pays(
        "spelling/small-letters",
        demand(
            "Addresses in small letters are the same accounts",
            texts.ours(
                because="half of all programs write them so; refused, a good payment is lost "
                "(measured: an official facilitator jams on it)"
            ),
        )(is_paid),
        changes={"small letters": _lower},
    ),
    pays(
        "spelling/capital-letters",
        left_open(
            "Does the facilitator accept capital hex digits, and wrong checksums?",
            why="no text says how hex is written",
        ),
        agreed("In any spelling of hex, a payment called valid settles as signed", texts.CALLS),
        changes={
            "payTo in capitals": lambda draft: draft.demanding(
                "payTo", _upper(draft.get("requirements.payTo"))
            ),
            "0X": lambda draft: draft.demanding(
                "payTo", "0X" + draft.get("requirements.payTo")[2:]
            ),
            "a wrong checksum": lambda draft: draft.with_value(
                "to", "0x" + draft.get("to")[2:].swapcase()
            ),
            "the nonce in capitals": lambda draft: draft.with_value(
                "nonce", _upper(draft.get("nonce"))
            ),
            "the signature in capitals": lambda draft: draft.with_value(
                "signature", _upper(draft.get("signature"))
            ),
            "the nonce without 0x": lambda draft: draft.with_value("nonce", draft.get("nonce")[2:]),
        },
    ),
    pays(
        "spelling/zeros",
        demand(
            "A payment with a nonce or a signature that begins with zeros is settled",
            texts.derived(
                texts.EXECUTES,
                texts.NONCE,
                so="one payment of 256 has such a nonce: who writes it as a number drops the zeros",
            ),
        )(is_paid),
        changes={f"{place} begins with a zero": _zero(place) for place in ("nonce", "r", "s")},
    ),
    refuses(
        "spelling/no-nonce",
        "A nonce other than 32 bytes is refused",
        texts.NONCE,
        texts.INVALID_PAYLOAD,
        changes={each: _nonce(spelt) for each, spelt in _NONCES.items()},
        so="of 31 or 33 bytes there are two ways to make 32, and one of them may be used",
    ),
    refuses(
        "spelling/no-time",
        "A malformed time is refused",
        texts.WINDOW,
        texts.INVALID_PAYLOAD,
        changes={each: put(*how) for each, how in _TIMES.items()},
        so=_MALFORMED,
    ),
    pays(
        "spelling/time-open",
        left_open(
            "Does the facilitator accept times as numbers, in hex, or with a point?",
            texts.WINDOW,
            why="a text is asked for; its form is left open",
        ),
        agreed("In any spelling of a time, a payment called valid settles as signed", texts.CALLS),
        changes={
            "numbers": lambda draft: draft.with_value(
                "validAfter", draft.auth.valid_after
            ).with_value("validBefore", draft.auth.valid_before),
            "hex": lambda draft: draft.with_value("validBefore", hex(draft.auth.valid_before)),
            "hex of validAfter": lambda draft: draft.with_value(
                "validAfter", hex(draft.auth.valid_after)
            ),
            "a point": lambda draft: draft.with_value(
                "validBefore", f"{draft.auth.valid_before}.0"
            ),
        },
        absent=only(STANDARD, "the dialect of Cronos has numbers for times"),
    ),
]
