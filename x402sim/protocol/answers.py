"""Says what is wrong with an answer about a payment: a receipt, or what a facilitator answers.

One function for each kind of message: `recognize` lists them. An answer that says that nothing
was paid is well formed and yet no reason to deliver, so that is a finding, too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from x402sim.protocol.chains import Family, family_of, hash_wanted, is_hash
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.findings import MILLISECONDS, Finding
from x402sim.protocol.networks import Network
from x402sim.protocol.ways import network_called
from x402sim.protocol.x402_reasons import PENDING

Said = Mapping[str, Any]
_ASK = (
    "Do not deliver for it. Ask the chain: Transfer events of the token, or "
    "authorizationState(from, nonce)."
)
_NONE = "nothing"


def is_paid(said: Said) -> bool:
    """Tell whether a receipt, of any dialect, says that a payment was made, and names its hash."""
    transaction = said.get("transaction", said.get("txHash"))
    return said.get("success") is True and is_hash(transaction, said.get("network"))


def is_pending(said: Said) -> bool:
    """Tell whether a receipt of the standard says that its transaction is not mined yet."""
    return said.get("success") is False and said.get("errorReason") == PENDING


def _shown(said: Said, name: str) -> str:
    return repr(said[name])[:120] if name in said else _NONE


def _of_hash(said: Said, name: str, network: Any) -> Iterator[Finding]:
    if not is_hash(said.get(name), network):
        of = f" of {network}" if isinstance(network, str) and network else ""
        form = hash_wanted(network)
        wanted = f"the hash of a transaction{of}{f': {form}' if form else ''}"
        yield Finding(name, _shown(said, name), wanted[:200], _ASK)


def _of_payer(said: Said, network: Any) -> Iterator[Finding]:
    """Yield that `payer` is no address, on an EVM network."""
    if said.get("payer") in (None, "") or family_of(network) is Family.OTHER:
        return
    try:
        parse_address(said["payer"])
    except (ValueError, TypeError):
        do = "Name who has paid, or leave the field out."
        yield Finding("payer", _shown(said, "payer"), "0x and 40 hex digits", do, stops=False)


def _of_network(said: Said, known: Mapping[str, Network], *, stops: bool) -> Iterator[Finding]:
    name = said.get("network")
    if network_called(name, known) is None and family_of(name) is Family.UNKNOWN:
        wanted = 'a name of CAIP-2 such as "eip155:84532", or one of version 1 as "base-sepolia"'
        do = "Name the network, so that the transaction can be looked up."
        yield Finding("network", _shown(said, "network"), wanted, do, stops)


def of_settlement(said: Said, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield what is wrong with a receipt of the standard, which is the answer of settle, too."""
    success, network, reason = said.get("success"), said.get("network"), said.get("errorReason")
    if type(success) is not bool:
        return  # its shape says it
    yield from _of_network(said, known, stops=success or is_pending(said))
    yield from _of_payer(said, network)
    if success:
        yield from _of_hash(said, "transaction", network)
        if reason:
            do = "Leave errorReason out of a success; a payer cannot tell which of them holds."
            yield Finding("errorReason", repr(reason)[:120], _NONE, do)
    elif is_pending(said):
        yield from _of_hash(said, "transaction", network)
        wanted = "a transaction that is mined"
        do = (
            "It is not paid yet, and may still be: settle the same payment again, or ask the chain "
            "for the transaction. Do not deliver, and do not sign another."
        )
        yield Finding("success", f"false, {PENDING}", wanted, do)
    else:
        yield from _of_refusal("success", said, "errorReason")
        if said.get("transaction"):
            yield from _of_hash(said, "transaction", network)


def _of_refusal(name: str, said: Said, reason: str) -> Iterator[Finding]:
    """Yield that an answer refuses, and that it does not say why if it does not."""
    why = said.get(reason)
    if isinstance(why, str) and why:
        yield Finding(name, f"false: {why[:100]}", "true", _advice(why))
        return
    yield Finding(
        name, "false", "true", "The payment was refused, and the answer does not say why."
    )
    wanted = "the reason in a word, such as 'insufficient_funds'"
    yield Finding(reason, _shown(said, reason), wanted, "Say why: a payer cannot correct it.")


_ADVICE = (
    (
        r"already|duplicate|used or cancel|invalid_transaction_state",
        "Its authorization was used or cancelled before: it may have paid already. Ask the chain "
        "before you sign another.",
    ),
    (
        r"unexpected|timeout|timed out",
        "It is not known whether it was paid. Ask the chain, or settle the same payment again, "
        "before you sign another.",
    ),
    (r"fund|balance", "Fund the payer with the token, and send the same payment again."),
    (
        r"valid_before|expired",
        "It has expired, or soon will: sign a new one, and send it at once.",
    ),
    (r"valid_after|not yet", "Send it again once its window has begun; compare the clocks."),
    (
        r"unsupported|invalid_network|invalid_scheme|version",
        "The facilitator does not settle this: compare it with what GET /supported answers.",
    ),
)
"""What to do about a refusal, by what its reason says: of whatever facilitator."""


def _advice(reason: str) -> str:
    """Return what to do about a payment that was refused."""
    for pattern, do in _ADVICE:
        if re.search(pattern, reason, re.IGNORECASE):
            return do
    return "Correct what the reason says, and sign anew; the old one can be used until it expires."


def of_verified(said: Said, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield what is wrong with the answer of verify."""
    valid, reason = said.get("isValid"), said.get("invalidReason")
    if type(valid) is not bool:
        return
    yield from _of_payer(said, said.get("network"))
    if not valid:
        yield from _of_refusal("isValid", said, "invalidReason")
    elif reason:
        do = "Leave invalidReason out if the payment is valid."
        yield Finding("invalidReason", repr(reason)[:120], _NONE, do)


def of_receipt(said: Said, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield what is wrong with a receipt of our two steps (4.1)."""
    if said.get("success") is not True:
        do = "It is not paid: an error has `error`, and no receipt."
        yield Finding("success", _shown(said, "success"), "true", do)
        return
    yield from _of_hash(said, "txHash", None)
    at = said.get("timestamp")
    if type(at) is int and at < MILLISECONDS:
        do = "Write Unix milliseconds: these seem to be seconds."
        yield Finding("timestamp", str(at), "milliseconds since 1970", do, stops=False)


def of_cronos_settled(said: Said, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield what is wrong with the answer of settle of Cronos' facilitator."""
    match said.get("event"):
        case "payment.settled":
            yield from _of_hash(said, "txHash", said.get("network"))
            yield from _of_network(said, known, stops=True)
        case "payment.failed":
            why = _shown(said, "error")
            do = _advice(why)
            yield Finding("event", f"payment.failed: {why}", "payment.settled", do)
        case other:
            wanted = "payment.settled or payment.failed"
            yield Finding("event", repr(other)[:80], wanted, "Write one of these two.")


def of_supported(said: Said, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield what is wrong with the answer of supported."""
    kinds = [each for each in said.get("kinds") or () if isinstance(each, dict)]
    if not kinds:
        do = "List what is settled: shops refuse to start without."
        yield Finding("kinds", "an empty list", "at least one kind", do)
    for number, each in enumerate(kinds, 1):
        version, name = each.get("x402Version"), each.get("network")
        is_caip2 = isinstance(name, str) and ":" in name
        if version in (1, 2) and is_caip2 != (version == 2):
            wanted = "a name of CAIP-2, such as 'eip155:84532'" if version == 2 else "a plain name"
            do = f"Clients and shops look for it as version {version} writes it."
            yield Finding(f"network of kind {number}", repr(name)[:80], wanted, do)
    if any(each.get("x402Version") == 2 for each in kinds):
        for name, kind in (("extensions", list), ("signers", dict)):
            if not isinstance(said.get(name), kind):
                wanted = f"{'a list' if kind is list else 'an object'}, which may be empty"
                do = "Add it: version 2 demands it of supported."
                yield Finding(name, _shown(said, name), wanted, do)


def listed_in(said: Said) -> list[Any] | None:
    """Return the resources in an answer of discovery, or of its search; None if it is none."""
    items, found = said.get("items"), said.get("resources")
    if isinstance(items, list):
        return items
    is_search = isinstance(found, list) and not any(isinstance(each, str) for each in found)
    return found if is_search else None


def of_listing(said: Said, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield what is wrong with a list of discovery, but for the ways to pay in it."""
    for number, each in enumerate(listed_in(said) or (), 1):
        if not isinstance(each, dict):
            yield Finding(f"item {number}", repr(each)[:80], "an object", "List resources.")
            continue
        for name in ("resource", "type"):
            if not isinstance(each.get(name), str) or not each[name]:
                do = "Name it: whoever looks for resources needs it."
                yield Finding(f"{name} of item {number}", _shown(each, name), "a string", do)
        if not isinstance(each.get("accepts"), list) or not each["accepts"]:
            do = "List the ways to pay it."
            yield Finding(f"accepts of item {number}", _shown(each, "accepts"), "a list", do)
