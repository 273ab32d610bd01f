"""Rules are tables: each row has a condition and a refusal, and the first failing row decides.

`SETTLEMENT` compares presented requirements with the issued ones (checked only in case of a
difference), `FRESHNESS` looks at their age, and `AUTHORIZES` tells whether a transfer pays for the
requirements, whoever submits the transfer. `VERIFICATION` is a facilitator's check of a payment,
and `STANDARD` adds the demands of the x402 standard. The token's own tables are in
`chain.ledger.frame`. `without` leaves a row out, to make a defective service; the tests must
detect each missing row.
Clauses: 2.1/*, 5/exact-amount, 5/exact-recipient, 5/signature-proves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from x402sim.protocol.crypto import UNDEPLOYED, BadSignature, canonical, recover
from x402sim.protocol.eip3009 import is_early, is_late, transfer_digest
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.messages import PaymentRequirements, RequiredPayment
from x402sim.protocol.money import BASE_UNITS
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.x402 import SCHEME

GRACE_S = 6
"""The least seconds of validity for a settlement in time; other facilitators have the same."""
Case = TypeVar("Case")
Verdict = TypeVar("Verdict")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Case, Verdict]):
    """One row: clause and condition, and the refusal and reason for a failing condition."""

    clause: str
    holds: Callable[[Case], bool]
    refusal: Verdict
    reason: Callable[[Case], str] = lambda _: ""


Rules = tuple[Rule[Case, Verdict], ...]


def first_broken(rules: Rules[Case, Verdict], case: Case) -> Rule[Case, Verdict] | None:
    """Return the first row that fails for `case`; None if all hold."""
    for rule in rules:
        if not rule.holds(case):
            return rule
    return None


def without(rules: Rules[Case, Verdict], clause: str) -> Rules[Case, Verdict]:
    """Return the table without the rows of `clause`; raises `KeyError` if it has none."""
    rest = tuple(rule for rule in rules if rule.clause != clause)
    if len(rest) == len(rules):
        raise KeyError(clause)
    return rest


# --- the service: is this the payment that was required? ----------------------------


class Presented(msgspec.Struct, frozen=True):
    """Requirements sent to /api/pay, and those issued under the same payment id."""

    requirements: PaymentRequirements
    issued: PaymentRequirements
    expires_s: int
    now_s: int


def _same(
    clause: str, field: str, normal: Callable[[str], object] | None = None
) -> Rule[Presented, Refusal]:
    """Return the row for a field: sent and issued are equal in a `normal` form."""
    at = PaymentRequirements.__struct_fields__.index(field)
    name, get = PaymentRequirements.__struct_encode_fields__[at], attrgetter(field)
    read = get if normal is None else lambda of: normal(get(of))
    return Rule(
        clause,
        lambda case: read(case.requirements) == read(case.issued),
        Refusal.MISMATCH,
        lambda case: f"{name}: issued {read(case.issued)}, got {str(read(case.requirements))[:80]}",
    )


SETTLEMENT: Rules[Presented, Refusal] = (
    _same("2.1/scheme", "scheme"),
    _same("2.1/network", "network"),
    _same("2.1/pay-to", "pay_to", str.lower),
    _same("2.1/asset", "asset", str.lower),
    _same("2.1/amount", "max_amount_required"),
    _same("2.1/timeout", "max_timeout_seconds"),
    _same("2.1/resource", "resource"),
    Rule(
        "2.1/description",
        lambda case: (
            not case.requirements.description
            or case.requirements.description == case.issued.description
        ),
        Refusal.MISMATCH,
        lambda case: f"description: issued {case.issued.description!r}, or leave it out",
    ),
)
"""The rows compare sent requirements with issued requirements, field by field.

Equal requirements break no row, so a service compares unequal ones only.
"""

FRESHNESS: Rules[Presented, Refusal] = (
    Rule(
        "2.1/validity",
        lambda case: case.now_s <= case.expires_s,
        Refusal.EXPIRED,
        lambda case: (
            f"the payment requirements expired {case.now_s - case.expires_s} s ago "
            "(maxTimeoutSeconds); repeat the request for new ones"
        ),
    ),
)
"""Checked after the stored records: a used and expired payment id is refused as used."""


# --- the facilitator: is this authorization valid for these requirements? ------------


class InvalidReason(Enum):
    """The reasons against a payment; each dialect has other texts."""

    HEADER = "the payment header cannot be read"
    SCHEME = "another scheme"
    NETWORK = "another network"
    ASSET = "another token"
    RECIPIENT = "another recipient"
    AMOUNT = "another amount"
    SIGNATURE = "not signed by the payer"
    UNDEPLOYED = "signed for a smart wallet that is not deployed"
    DOMAIN = "no name and version of the token's domain"
    DOMAIN_NAME = "another name in the token's domain"
    DOMAIN_VERSION = "another version in the token's domain"
    EARLY = "the window has not opened"
    LATE = "the window has closed, or is about to"


class StandardTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The x402 standard's demands beyond the Cronos facilitator's.

    `may_exceed`: more than the required amount pays, too (version 1). `domain` is the EIP-712
    domain in the requirements; `now_s` the facilitator's time.
    """

    may_exceed: bool
    domain: Mapping[str, Any]
    now_s: int


class Verification(msgspec.Struct, frozen=True):
    """A signed payment, and the requirements to satisfy."""

    payment: SignedPayment
    requirements: RequiredPayment
    supported: Network
    terms: StandardTerms | None = None
    """Further demands, in the dialects of the x402 standard."""
    wallet: bool | None = None
    """Whether the payer's contract accepts the signature (EIP-1271); None without a contract."""

    def pays_enough(self) -> bool:
        """Compare the amount with the required one (5/exact-amount)."""
        wanted, value = self.requirements.max_amount_required, self.payment.authorization.value
        if self.terms is not None and self.terms.may_exceed and BASE_UNITS.fullmatch(wanted):
            return value >= int(wanted)
        return wanted == str(value)

    def is_signed_by_payer(self) -> bool:
        """Compare the signer with `from`; a contract's own verdict counts, as at Circle's token
        (5/signature-proves).
        """
        return self._is_signer(self.payment.signature) if self.wallet is None else self.wallet

    def gives_consent(self) -> bool:
        """Tell whether the payer has signed, in this form or in the token's form."""
        signature = self.payment.signature
        return self._is_signer(signature) or self._is_signer(canonical(signature))

    def _is_signer(self, signature: bytes) -> bool:
        authorization = self.payment.authorization
        digest = transfer_digest(authorization, self.supported.domain)
        try:
            return recover(digest, signature) == authorization.from_
        except BadSignature:
            return False


def differing(wanted: str, *got: str) -> str:
    """Return the value unlike the wanted value, rather in more than the case."""
    odd = [value for value in got if value != wanted]
    return next((value for value in odd if value.lower() != wanted.lower()), odd[0])


def _asset(case: Verification) -> str:
    return "0x" + case.supported.asset.hex()


_TRANSFERS: Rules[Verification, InvalidReason] = (
    Rule(
        "5/exact-recipient",
        lambda case: case.requirements.pay_to.lower() == "0x" + case.payment.authorization.to.hex(),
        InvalidReason.RECIPIENT,
    ),
    Rule(
        "5/exact-amount",
        lambda case: case.pays_enough(),
        InvalidReason.AMOUNT,
        lambda case: str(case.payment.authorization.value),
    ),
)
AUTHORIZES: Rules[Verification, InvalidReason] = (
    *_TRANSFERS,
    Rule("5/signature-proves", lambda case: case.gives_consent(), InvalidReason.SIGNATURE),
)
"""When an authorization pays for the requirements, whoever submits it to the token."""

VERIFICATION: Rules[Verification, InvalidReason] = (
    Rule(
        "2.1/scheme",
        lambda case: case.payment.scheme == case.requirements.scheme == "exact",
        InvalidReason.SCHEME,
        lambda case: differing("exact", case.requirements.scheme, case.payment.scheme),
    ),
    Rule(
        "2.1/network",
        lambda case: case.payment.network == case.requirements.network == case.supported.name,
        InvalidReason.NETWORK,
        lambda case: differing(
            case.supported.name, case.requirements.network, case.payment.network
        ),
    ),
    Rule(
        "2.1/asset",
        lambda case: case.payment.asset.lower() == case.requirements.asset.lower() == _asset(case),
        InvalidReason.ASSET,
        lambda case: differing(_asset(case), case.requirements.asset, case.payment.asset),
    ),
    *_TRANSFERS,
    Rule("5/signature-proves", lambda case: case.is_signed_by_payer(), InvalidReason.SIGNATURE),
)
"""In the order of the reasons in the Cronos facilitator's documentation."""
MATCH = without(VERIFICATION, "5/signature-proves")
"""What a payment must match; a facilitator or the chain verifies the signature."""


def _demand(
    clause: str, refusal: InvalidReason, holds: Callable[[Verification, StandardTerms], bool]
) -> Rule[Verification, InvalidReason]:
    return Rule(clause, lambda case: case.terms is None or holds(case, case.terms), refusal)


def _same_in_domain(key: str, wanted: Callable[[Network], str]) -> Callable[..., bool]:
    """Return whether the requirements name our token's domain, if they are for our network."""

    def holds(case: Verification, terms: StandardTerms) -> bool:
        return not _is_ours(case) or terms.domain.get(key) == wanted(case.supported)

    return holds


def _is_ours(case: Verification) -> bool:
    """Tell whether requirements are of our scheme and network; others have no domain of ours."""
    wanted = case.requirements
    return wanted.scheme == SCHEME and wanted.network == case.supported.name


def _names_domain(case: Verification, terms: StandardTerms) -> bool:
    named = (terms.domain.get(name) for name in ("name", "version"))
    return not _is_ours(case) or all(isinstance(text, str) for text in named)


STANDARD: Rules[Verification, InvalidReason] = (
    _demand("x402/domain", InvalidReason.DOMAIN, _names_domain),
    _demand(
        "x402/token-name",
        InvalidReason.DOMAIN_NAME,
        _same_in_domain("name", lambda n: n.token_name),
    ),
    _demand(
        "x402/token-version",
        InvalidReason.DOMAIN_VERSION,
        _same_in_domain("version", lambda n: n.token_version),
    ),
    _demand(
        "x402/valid-before",
        InvalidReason.LATE,
        lambda case, terms: not is_late(case.payment.authorization, terms.now_s + GRACE_S - 1),
    ),
    _demand(
        "x402/valid-after",
        InvalidReason.EARLY,
        lambda case, terms: not is_early(case.payment.authorization, terms.now_s),
    ),
    _demand(
        "x402/deployed-wallet",
        InvalidReason.UNDEPLOYED,
        lambda case, _: case.wallet is not None or not case.payment.signature.endswith(UNDEPLOYED),
    ),
)
"""Further demands of the x402 standard's facilitators, before `VERIFICATION`; the Cronos
facilitator has none, and leaves the window to the token."""
