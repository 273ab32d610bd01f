"""Rules are tables: each refusal is one row, and walking the table gives the first.

`SETTLEMENT` says when the service takes a presented payment for the one it issued;
`VERIFICATION` says when the facilitator takes an authorization for valid. The token's
own table is in `chain.token`. A table with one row left out is a defective service:
`without` makes those, and the tests must notice every one of them.
Clauses: 2.1/*, 5/exact-amount, 5/exact-recipient, 5/signature-proves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from x402sim.protocol.crypto import BadSignature, recover
from x402sim.protocol.eip3009 import Authorization, transfer_digest
from x402sim.protocol.messages import FacilitatorRequirements, PaymentRequirements
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal

Case = TypeVar("Case")
Verdict = TypeVar("Verdict")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Case, Verdict]):
    """One row: the clause it keeps, when it holds, and what is said when it does not."""

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


@dataclass(frozen=True, slots=True)
class Presented:
    """Requirements sent to /api/pay, beside those issued under the same payment id."""

    requirements: PaymentRequirements
    issued: PaymentRequirements
    expires_s: int
    now_s: int


def _field(
    clause: str, name: str, read: Callable[[PaymentRequirements], object]
) -> Rule[Presented, Refusal]:
    return Rule(
        clause,
        lambda case: read(case.requirements) == read(case.issued),
        Refusal.MISMATCH,
        lambda case: f"{name}: issued {read(case.issued)}, got {str(read(case.requirements))[:80]}",
    )


SETTLEMENT: Rules[Presented, Refusal] = (
    _field("2.1/scheme", "scheme", lambda r: r.scheme),
    _field("2.1/network", "network", lambda r: r.network),
    _field("2.1/pay-to", "payTo", lambda r: r.pay_to.lower()),
    _field("2.1/asset", "asset", lambda r: r.asset.lower()),
    _field("2.1/amount", "maxAmountRequired", lambda r: r.max_amount_required),
    _field("2.1/timeout", "maxTimeoutSeconds", lambda r: r.max_timeout_seconds),
    _field("2.1/resource", "resource", lambda r: r.resource),
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
"""Asked after the stored records, so that a used id says so even when it is old."""


# --- the facilitator: is this authorization valid for these requirements? ------------


@dataclass(frozen=True, slots=True)
class Verification:
    """A decoded payment header beside the requirements it should satisfy."""

    scheme: str
    network: str
    asset: str
    authorization: Authorization
    signature: bytes
    requirements: FacilitatorRequirements
    supported: Network

    def is_signed_by_payer(self) -> bool:
        """Recover the signer and compare it with `from` (5/signature-proves)."""
        digest = transfer_digest(self.authorization, self.supported.domain)
        try:
            return recover(digest, self.signature) == self.authorization.from_
        except BadSignature:
            return False


def _odd(wanted: str, *got: str) -> str:
    """Return the value that is not the wanted one, for the text of a refusal."""
    odd = [value for value in got if value != wanted]
    return next((value for value in odd if value.lower() != wanted.lower()), odd[0])


def _says(text: str) -> str:
    return text[:100]


def _asset(case: Verification) -> str:
    return "0x" + case.supported.asset.hex()


VERIFICATION: Rules[Verification, str] = (
    Rule(
        "2.1/scheme",
        lambda case: case.scheme == case.requirements.scheme == "exact",
        "Unsupported scheme: {}",
        lambda case: _odd("exact", case.requirements.scheme, case.scheme),
    ),
    Rule(
        "2.1/network",
        lambda case: case.network == case.requirements.network == case.supported.name,
        "Unsupported network: {}",
        lambda case: _odd(case.supported.name, case.requirements.network, case.network),
    ),
    Rule(
        "2.1/asset",
        lambda case: case.asset.lower() == case.requirements.asset.lower() == _asset(case),
        "Unsupported asset: {}",
        lambda case: _odd(_asset(case), case.requirements.asset, case.asset),
    ),
    Rule(
        "5/exact-recipient",
        lambda case: case.requirements.pay_to.lower() == "0x" + case.authorization.to.hex(),
        "Recipient does not match payTo address",
    ),
    Rule(
        "5/exact-amount",
        lambda case: case.requirements.max_amount_required == str(case.authorization.value),
        "Invalid amount: {}",
        lambda case: str(case.authorization.value),
    ),
    Rule(
        "5/signature-proves",
        lambda case: case.is_signed_by_payer(),
        "Invalid EIP-3009 signature",
    ),
)
"""In the order of the Cronos facilitator's list of reasons."""


def invalid_reason(rules: Rules[Verification, str], case: Verification) -> str | None:
    """Return the facilitator's reason why a payment is invalid, or None if it is valid."""
    broken = first_broken(rules, case)
    return broken.refusal.format(_says(broken.reason(case))) if broken else None
