"""Rules are tables: each refusal is one row, and the first broken row is the answer.

`SETTLEMENT` says when presented requirements are those the service issued;
`VERIFICATION` says when a payment is valid for a facilitator. The token's
own table is in `chain.ledger.token_rules`. A table with one row left out makes a defective
service: `without` makes those, and the tests must notice every one of them.
Clauses: 2.1/*, 5/exact-amount, 5/exact-recipient, 5/signature-proves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

import msgspec

from x402sim.protocol.crypto import BadSignature, recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.messages import PaymentRequirements, RequiredPayment, wire_name
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal

Case = TypeVar("Case")
Verdict = TypeVar("Verdict")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Case, Verdict]):
    """One row: its clause, when it holds, and the refusal and its reason when it does not."""

    clause: str
    holds: Callable[[Case], bool]
    refusal: Verdict
    reason: Callable[[Case], str] = lambda _: ""


Rules = tuple[Rule[Case, Verdict], ...]


def first_broken(rules: Rules[Case, Verdict], case: Case) -> Rule[Case, Verdict] | None:
    """Return the first row that does not hold for `case`."""
    return next((rule for rule in rules if not rule.holds(case)), None)


def without(rules: Rules[Case, Verdict], clause: str) -> Rules[Case, Verdict]:
    """Return the table without the rows that keep `clause`; raises `KeyError` if none does."""
    rest = tuple(rule for rule in rules if rule.clause != clause)
    if len(rest) == len(rules):
        raise KeyError(clause)
    return rest


# --- the service: is this the payment that was asked for? ----------------------------


class Presented(msgspec.Struct, frozen=True):
    """Requirements sent to /api/pay, beside those issued under the same payment id."""

    requirements: PaymentRequirements
    issued: PaymentRequirements
    expires_s: int
    now_s: int


def _same(
    clause: str, field: str, normal: Callable[[str], object] = lambda value: value
) -> Rule[Presented, Refusal]:
    """Return the row that demands one field as it was issued, both brought to a `normal` form."""
    name = wire_name(PaymentRequirements, field)
    return Rule(
        clause,
        lambda case: (
            normal(getattr(case.requirements, field)) == normal(getattr(case.issued, field))
        ),
        Refusal.MISMATCH,
        lambda case: (
            f"{name}: issued {normal(getattr(case.issued, field))}, "
            f"got {str(normal(getattr(case.requirements, field)))[:80]}"
        ),
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
"""What was sent back must be what was issued, field by field."""

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
"""Checked after the stored records: a used payment id is refused as used even when it is old."""


# --- the facilitator: is this authorization valid for these requirements? ------------


class Invalid(Enum):
    """Why a payment does not pay what is required; each dialect has its own text for it."""

    HEADER = "the payment header cannot be read"
    SCHEME = "another scheme"
    NETWORK = "another network"
    ASSET = "another token"
    RECIPIENT = "another recipient"
    AMOUNT = "another amount"
    SIGNATURE = "not signed by the payer"


class Verification(msgspec.Struct, frozen=True):
    """A signed payment beside the requirements it should satisfy."""

    payment: SignedPayment
    requirements: RequiredPayment
    supported: Network

    def is_signed_by_payer(self) -> bool:
        """Recover the signer and compare it with `from` (5/signature-proves)."""
        authorization = self.payment.authorization
        digest = transfer_digest(authorization, self.supported.domain)
        try:
            return recover(digest, self.payment.signature) == authorization.from_
        except BadSignature:
            return False


def _odd(wanted: str, *got: str) -> str:
    """Return the value that is not the wanted one, for the text of a refusal."""
    odd = [value for value in got if value != wanted]
    return next((value for value in odd if value.lower() != wanted.lower()), odd[0])


def _asset(case: Verification) -> str:
    return "0x" + case.supported.asset.hex()


VERIFICATION: Rules[Verification, Invalid] = (
    Rule(
        "2.1/scheme",
        lambda case: case.payment.scheme == case.requirements.scheme == "exact",
        Invalid.SCHEME,
        lambda case: _odd("exact", case.requirements.scheme, case.payment.scheme),
    ),
    Rule(
        "2.1/network",
        lambda case: case.payment.network == case.requirements.network == case.supported.name,
        Invalid.NETWORK,
        lambda case: _odd(case.supported.name, case.requirements.network, case.payment.network),
    ),
    Rule(
        "2.1/asset",
        lambda case: case.payment.asset.lower() == case.requirements.asset.lower() == _asset(case),
        Invalid.ASSET,
        lambda case: _odd(_asset(case), case.requirements.asset, case.payment.asset),
    ),
    Rule(
        "5/exact-recipient",
        lambda case: case.requirements.pay_to.lower() == "0x" + case.payment.authorization.to.hex(),
        Invalid.RECIPIENT,
    ),
    Rule(
        "5/exact-amount",
        lambda case: case.requirements.max_amount_required == str(case.payment.authorization.value),
        Invalid.AMOUNT,
        lambda case: str(case.payment.authorization.value),
    ),
    Rule(
        "5/signature-proves",
        lambda case: case.is_signed_by_payer(),
        Invalid.SIGNATURE,
    ),
)
"""In the order of the Cronos facilitator's list of reasons."""
