"""Differences between a payment and the requirements: the words of a refusal, with both values.

A signature names no domain. A signature not by the payer in the token's domain is tried in the
domains of usual mistakes by wallets, to name the wrong field.
Clauses: 5/exact-amount, 5/exact-recipient, 5/signature-proves.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, product, starmap
from typing import Any, assert_never

from msgspec.structs import replace

from x402sim.protocol.crypto import BadSignature, checksum, recover
from x402sim.protocol.eip3009 import (
    DOMAIN_FIELDS,
    Authorization,
    Domain,
    partial_digest,
    transfer_digest,
)
from x402sim.protocol.networks import NETWORKS, TEST_CHAIN_IDS
from x402sim.protocol.rules import GRACE_S, InvalidReason, StandardTerms, Verification, differing

MOST_SHOWN = 80
"""The most characters shown of a value."""
_KNOWN = tuple(network.domain for network in NETWORKS.values())
_MISTAKES: dict[str, set[Any]] = {
    "name": {"USDC", "USD Coin", *(domain.name for domain in _KNOWN)},
    "version": {"1", "2"},
    "chain_id": {1, 8453, *TEST_CHAIN_IDS, *(domain.chain_id for domain in _KNOWN)},
    "verifying_contract": {domain.verifying_contract for domain in _KNOWN},
}
"""The values of each field signed by mistake."""

OTHER_DOMAIN = "signed in another domain"
"""The beginning of the reason for a signature right in another EIP-712 domain."""


def difference(why: InvalidReason, case: Verification) -> str:
    """Return the wanted and the given value, as "value: wanted 10000, got 5000"."""
    wanted, ours, auth = case.requirements, case.supported, case.payment.authorization
    terms = case.terms or StandardTerms(may_exceed=False, domain={}, now_s=0)
    match why:
        case InvalidReason.SCHEME:
            return _odd("scheme", "exact", wanted.scheme, case.payment.scheme)
        case InvalidReason.NETWORK:
            return _odd("network", ours.name, wanted.network, case.payment.network)
        case InvalidReason.ASSET:
            return _odd("asset", checksum(ours.asset), wanted.asset, case.payment.asset)
        case InvalidReason.RECIPIENT:
            return unequal("to", wanted.pay_to, checksum(auth.to))
        case InvalidReason.AMOUNT:
            return unequal("value", wanted.max_amount_required, auth.value)
        case InvalidReason.SIGNATURE:
            return _signature(case)
        case InvalidReason.DOMAIN:
            named = [n for n in ("name", "version") if isinstance(terms.domain.get(n), str)]
            return unequal("extra", "name and version", ", ".join(named) or "neither")
        case InvalidReason.DOMAIN_NAME:
            return unequal("extra.name", ours.token_name, terms.domain.get("name"))
        case InvalidReason.DOMAIN_VERSION:
            return unequal("extra.version", ours.token_version, terms.domain.get("version"))
        case InvalidReason.EARLY:
            return times("validAfter", auth.valid_after, terms.now_s)
        case InvalidReason.LATE:
            return too_late(auth.valid_before, terms.now_s)
        case InvalidReason.HEADER | InvalidReason.UNDEPLOYED:
            return str(why.value)
        case _:
            assert_never(why)


SERVER_CLOCK = "the server's clock says"


def times(end: str, at_s: int, now_s: int, clock: str = SERVER_CLOCK) -> str:
    """Return an end of a window and the compared time, in Unix seconds, by a `clock`."""
    return f"{end} is {at_s}, {clock} {now_s}"


MILLISECONDS, NO_TIME = 10**11, 10**14
"""Unix seconds of the year 5138: greater numbers are milliseconds. From the second number on,
neither: some payers sign a window without end.
"""


def is_milliseconds(at: int) -> bool:
    """Tell whether a time seems to be in milliseconds."""
    return MILLISECONDS < at < NO_TIME


def too_far(valid_before: int, now_s: int, most_s: float) -> str:
    """Return why an authorization lasts too long: validBefore, the time, and the most seconds."""
    ahead = f"{times('validBefore', valid_before, now_s)}; at most {most_s:.0f} s ahead of that"
    milliseconds = ". Milliseconds? It is wanted in Unix seconds" * is_milliseconds(valid_before)
    return f"{ahead} are taken{milliseconds}"


def too_late(valid_before: int, now_s: int, clock: str = SERVER_CLOCK) -> str:
    """Return why an authorization ends too soon to be settled, with the least validity."""
    return f"{times('validBefore', valid_before, now_s, clock)}; at least {GRACE_S} s must be left"


def unequal(name: str, wanted: object, got: object) -> str:
    """Return both values, as "value: wanted 10000, got 5000"."""
    return f"{name}: wanted {str(wanted)[:MOST_SHOWN]}, got {str(got)[:MOST_SHOWN]}"


def _odd(name: str, wanted: str, *got: str) -> str:
    return unequal(name, wanted, differing(wanted, *got))


# --- signatures ----------------------------------------------------------------------


def _signature(case: Verification) -> str:
    """Return the signer instead of the payer, or the wrong field of the domain."""
    payment, ours = case.payment, case.supported.domain
    auth = payment.authorization
    try:
        signer = recover(transfer_digest(auth, ours), payment.signature)
        wrong = domain_signed(auth, payment.signature, ours)
    except BadSignature as bad:
        return str(bad)
    if wrong is not None:
        return f"{OTHER_DOMAIN}: {', '.join(starmap(unequal, unlike(ours, wrong)))}"
    if (partial := partial_domain_signed(auth, payment.signature, ours)) is not None:
        return f"{OTHER_DOMAIN}: {partial}"
    domain = ", ".join(f"{name} {value}" for name, value in _fields(ours).items())
    return f"signer: wanted {checksum(auth.from_)}, got {checksum(signer)}, in the domain {domain}"


def domain_signed(
    auth: Authorization, signature: bytes, ours: Domain, known: Iterable[Domain] = _KNOWN
) -> Domain | None:
    """Return the domain signed by the payer instead, among usual mistakes, or None.

    Raises `BadSignature` if nobody can be recovered.
    """
    for domain in _mistaken(ours, known):
        if recover(transfer_digest(auth, domain), signature) == auth.from_:
            return domain
    return None


def partial_domain_signed(auth: Authorization, signature: bytes, ours: Domain) -> str | None:
    """Return the fields of EIP712Domain that the payer's wallet left out, in words.

    A browser wallet signs the fields declared in `types.EIP712Domain`, perhaps none. Returns None
    without a match; raises `BadSignature` if nobody can be recovered.
    """
    for count in range(len(DOMAIN_FIELDS)):
        for names in combinations(DOMAIN_FIELDS, count):
            if recover(partial_digest(auth, ours, names), signature) == auth.from_:
                declared = f"with {', '.join(names)} only" if names else "without any field"
                return f"an EIP712Domain {declared}; wanted {', '.join(DOMAIN_FIELDS)}"
    return None


def unlike(ours: Domain, other: Domain) -> list[tuple[str, object, object]]:
    """Return the fields in which two domains differ: the name in EIP-712, ours, the other's."""
    own, its = _fields(ours), _fields(other)
    return [(name, own[name], its[name]) for name in own if own[name] != its[name]]


def _mistaken(ours: Domain, known: Iterable[Domain]) -> Iterator[Domain]:
    yield from known
    for field, values in _MISTAKES.items():
        yield from (replace(ours, **{field: value}) for value in values)
    for field in ("name", "chain_id", "verifying_contract"):  # the version is often wrong, too
        for value, version in product(_MISTAKES[field], _MISTAKES["version"]):
            yield replace(ours, **{field: value}, version=version)


def _fields(domain: Domain) -> dict[str, object]:
    return {
        "name": domain.name,
        "version": domain.version,
        "chainId": domain.chain_id,
        "verifyingContract": checksum(domain.verifying_contract),
    }
