"""Advice about a refused payment: one text for each fault.

`pay --wrong`, the page and the pages of runs give the advice. `advice_for` finds the text by the
answer: an error or a reason of the service, or a word of a facilitator, in any dialect.
"""

from collections import defaultdict

from x402sim.protocol import cronos, x402_reasons
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.differences import OTHER_DOMAIN
from x402sim.protocol.refusals import NOT_ISSUED, Refusal
from x402sim.protocol.rules import InvalidReason
from x402sim.protocol.x402 import VERSIONS
from x402sim.protocol.x402_reasons import WORDS, Meaning

ADVICE = {
    "amount": "Sign exactly the amount of the 402, in base units: neither less nor more.",
    "payee": "Sign the payTo of the 402 as `to`.",
    "expired": "Sign when you pay, and send it at once. If it was just signed, compare the payer's "
    "clock with the server's.",
    "not-yet-valid": "Let the window begin a minute or more before now: clocks differ.",
    "signature": "Sign with the key of `from`, and change nothing after signing.",
    "domain": "Sign the domain that the token itself names: name() and version() on the chain, "
    "`extra` in a 402 of the standard.",
    "network": "Name the network of the 402, and sign with its chain id.",
    "asset": "Name and sign for the token contract (`asset`) of the 402.",
    "funds": "Fund the account; on a local server, with POST /_sim/faucet.",
    "resource": "Send the resource of the 402 back unchanged: a payment is for one resource.",
    "payment-id": "Send the paymentId of the 402, with the requirements of the same 402.",
    "replay": "Sign an authorization with a new random nonce for each payment. To get again what "
    "was paid for, show its payment id.",
}
"""By fault: the names of the mistakes of `pay --wrong`."""
UNCLEAR = Meaning.UNCLEAR
_INVALID = {
    InvalidReason.NETWORK: "network",
    InvalidReason.ASSET: "asset",
    InvalidReason.RECIPIENT: "payee",
    InvalidReason.AMOUNT: "amount",
    InvalidReason.SIGNATURE: "signature",
    InvalidReason.DOMAIN_NAME: "domain",
    InvalidReason.DOMAIN_VERSION: "domain",
    InvalidReason.EARLY: "not-yet-valid",
    InvalidReason.LATE: "expired",
}


def advice_for() -> dict[str, str]:
    """Return the advice for an answered text, by the longest known beginning.

    Every text begins with the empty text: an unknown word leaves the outcome unknown.
    """
    found = {
        Refusal.INSUFFICIENT_BALANCE.text: "funds",
        Refusal.NONCE_USED.text: "replay",
        SettleError.EXPIRED.value: "expired",
        SettleError.EARLY.value: "not-yet-valid",
        SettleError.BALANCE.value: "funds",
        SettleError.USED.value: "replay",
        x402_reasons.FUNDS: "funds",
        x402_reasons.NONCE_USED[2]: "replay",
        "resource:": "resource",
        NOT_ISSUED: "payment-id",
    }
    meanings = defaultdict[str, set[str]](set)
    for why in InvalidReason:
        name = _INVALID.get(why, "")
        for version in VERSIONS:
            meanings[x402_reasons.invalid_reason(version, why)].add(name)
        if name and why in cronos.INVALID_REASONS:
            meanings[cronos.invalid_reason(why)].add(name)
    # a facilitator's word counts if it has one meaning
    found |= {word: name for word, (name, *more) in meanings.items() if name and not more}
    found[f"{cronos.invalid_reason(InvalidReason.SIGNATURE)}; {OTHER_DOMAIN}"] = "domain"
    by_word = {word: meaning.do for word, meaning in WORDS.items() if meaning is not UNCLEAR}
    return by_word | {begin: ADVICE[name] for begin, name in found.items()} | {"": UNCLEAR.do}
