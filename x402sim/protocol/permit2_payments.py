"""Payments by Permit2 in version 2 of the x402 standard: `exact` with the transfer method permit2,
and `upto`. The messages, and a facilitator's rules as a table of words.

In `upto`, `amount` of the requirements is the maximum at verify, and the used amount at settle; the
signed amount is always the maximum.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar, Literal

import msgspec

from x402sim.protocol.crypto import (
    ZERO_ADDRESS,
    Address,
    BadSignature,
    checksum,
    from_hex,
    parse_address,
    to_hex,
)
from x402sim.protocol.differences import SERVER_CLOCK, times, unequal
from x402sim.protocol.eip3009 import Authorization, Permit
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.messages import BadMessage, Wire, decode, fields_of
from x402sim.protocol.money import MAX_UINT256, parse_base
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
    signer_of,
)
from x402sim.protocol.rules import GRACE_S, Rule, Rules
from x402sim.protocol.x402 import SCHEME, AnyRequirements, RequirementsV2, Resource, Version

UPTO = "upto"
PERMIT2_METHOD = "permit2"
"""The value of `extra.assetTransferMethod` for `exact`."""
METHOD = "assetTransferMethod"
FACILITATOR = "facilitatorAddress"
"""The name in `extra` of the account that may settle `upto`, as GET /supported announces."""
SPONSORED_PERMIT = "eip2612GasSponsoring"
"""The extension with the payer's EIP-2612 permit for Permit2: the facilitator pays its gas."""
APPROVAL = "erc20ApprovalGasSponsoring"
"""The extension with a signed transaction of the payer, which approves Permit2."""
_ADDRESS, _NUMBER, _HEX = "^0x[a-fA-F0-9]{40}$", "^[0-9]+$", "^0x[a-fA-F0-9]+$"
_OF_BOTH = {"from": _ADDRESS, "asset": _ADDRESS, "spender": _ADDRESS, "amount": _NUMBER}
_VERSION = {"version": r"^[0-9]+(\.[0-9]+)*$"}
_SPONSORINGS = {
    SPONSORED_PERMIT: (
        "The facilitator sends the payer's EIP-2612 permit for Permit2, and pays the gas.",
        _OF_BOTH | {"nonce": _NUMBER, "deadline": _NUMBER, "signature": _HEX} | _VERSION,
    ),
    APPROVAL: (
        "The facilitator broadcasts the payer's signed approval of Permit2, and pays the gas.",
        _OF_BOTH | {"signedTransaction": _HEX} | _VERSION,
    ),
}
"""Each sponsoring: what the facilitator does, and the fields of the payer with their patterns."""
PROXIES = {SCHEME: EXACT_PROXY, UPTO: UPTO_PROXY}
"""The contract that a payer of each scheme names as the spender."""
UPTO_CLAUSES = {
    "upto/maximum": "Never more than the signed maximum is settled.",
    "upto/used": "The amount used is settled once, after the work; the rest stays with the payer.",
    "upto/nothing": "Nothing used needs no transaction, and the message stays usable.",
    "upto/unpaid": "An answer that cannot be settled is kept back until it is.",
    "upto/sponsored": "With a payer's permit the facilitator pays for the approval of Permit2.",
}
"""What a scenario may cite of goods sold `upto`, which the specification does not have."""


def sponsorings(listed: Sequence[str]) -> dict[str, Any] | None:
    """Return the extensions of a 402, with a JSON Schema each, for those that a facilitator lists;
    None without any.
    """
    return {
        name: {
            "info": {"description": about, "version": "1"},
            "schema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {
                    field: {"type": "string", "pattern": pattern}
                    for field, pattern in patterns.items()
                },
                "required": list(patterns),
            },
        }
        for name, (about, patterns) in _SPONSORINGS.items()
        if name in listed
    } or None


def pays_by_permit2(offered: AnyRequirements) -> bool:
    """Tell whether an offer is paid by Permit2: `upto`, or `exact` with this transfer method."""
    method = (offered.extra or {}).get(METHOD)
    return offered.scheme == UPTO or (offered.scheme == SCHEME and method == PERMIT2_METHOD)


# --- messages ---------------------------------------------------------------------------


class PermittedFields(Wire, frozen=True):
    """The token, and the most that may be taken, in base units."""

    token: str
    amount: str


class WitnessFields(Wire, frozen=True, omit_defaults=True):
    """The payee and the first second; in `upto` also the account that settles."""

    to: str
    valid_after: str
    facilitator: str | None = None


class Permit2Fields(Wire, frozen=True):
    """A signed message of Permit2: numbers as decimal strings, addresses as 0x-hex."""

    permitted: PermittedFields
    from_: str = msgspec.field(name="from")
    spender: str
    nonce: str
    deadline: str
    witness: WitnessFields


class Permit2Payload(Wire, frozen=True):
    """The payload of a payment by Permit2."""

    signature: str
    permit2_authorization: Permit2Fields


class Permit2Payment(Wire, frozen=True, omit_defaults=True):
    """A payment by Permit2."""

    version: ClassVar[Version] = 2
    x402_version: Literal[2]
    accepted: RequirementsV2
    payload: Permit2Payload
    resource: Resource | None = None
    extensions: dict[str, Any] | None = None


class SponsoredPermit(Wire, frozen=True):
    """The `info` of the extension eip2612GasSponsoring in a payment."""

    from_: str = msgspec.field(name="from")
    asset: str
    spender: str
    amount: str
    nonce: str
    deadline: str
    signature: str
    version: str


def permit2_payment_of(body: bytes) -> Permit2Payment:
    """Read the JSON of a payment by Permit2; raises `BadMessage`."""
    payment: Permit2Payment = decode(body, Permit2Payment)
    return payment


def signed_in(payment: Permit2Payment) -> SignedPayment:
    """Return what a payment by Permit2 signs; raises `BadMessage`."""
    accepted = payment.accepted
    auth, signature = message_of(payment)
    return SignedPayment(
        scheme=accepted.scheme,
        network=accepted.network,
        asset=accepted.asset,
        authorization=terms_of(auth),
        signature=signature,
        permit2=auth,
    )


def is_permit2(payload: Any) -> bool:
    """Tell whether the payload of a payment is of Permit2."""
    return isinstance(payload, dict) and "permit2Authorization" in payload


def message_of(payment: Permit2Payment) -> tuple[Permit2Authorization, bytes]:
    """Return the message and the signature of a payment; raises `BadMessage`."""
    return authorization_of(payment.payload, payment.accepted.scheme)


def authorization_of(payload: Permit2Payload, scheme: str) -> tuple[Permit2Authorization, bytes]:
    """Return the message and the signature of a payload; raises `BadMessage`. In another scheme
    than `upto`, a facilitator in the witness is an unknown field.
    """
    fields = payload.permit2_authorization
    witness, text = fields.witness, payload.signature
    named = witness.facilitator if scheme == UPTO else None
    try:
        auth = Permit2Authorization(
            from_=parse_address(fields.from_),
            token=parse_address(fields.permitted.token),
            amount=parse_base(fields.permitted.amount),
            spender=parse_address(fields.spender),
            nonce=_number("nonce", fields.nonce),
            deadline=_number("deadline", fields.deadline),
            to=parse_address(witness.to),
            valid_after=_number("witness.validAfter", witness.valid_after),
            facilitator=parse_address(named) if named is not None else None,
        )
        return auth, from_hex(text, len(text) // 2 - 1)
    except ValueError as wrong:
        raise BadMessage(f"permit2Authorization: {wrong}") from None


def terms_of(auth: Permit2Authorization) -> Authorization:
    """Return the terms of a message of Permit2 as an authorization: the maximum as the value, and
    the second after the deadline as the end.
    """
    window = auth.valid_after, auth.deadline + 1
    return Authorization(auth.from_, auth.to, auth.amount, *window, auth.nonce.to_bytes(32))


def _number(name: str, text: str) -> int:
    """Return an unsigned number of 256 bits: digits, or 0x and 64 hex digits, as the standard's
    example of `upto` has it.
    """
    if text.startswith("0x"):
        return int.from_bytes(from_hex(text, 32))
    if not (text.isascii() and text.isdigit() and len(text) < 79 and int(text) <= MAX_UINT256):
        raise ValueError(f"{name}: wanted a number of digits, got {text[:90]!r}")
    return int(text)


def permit2_payload(auth: Permit2Authorization, signature: bytes) -> Permit2Payload:
    """Return a signed message as the payload of a payment."""
    return Permit2Payload(
        signature=to_hex(signature),
        permit2_authorization=Permit2Fields(
            permitted=PermittedFields(token=checksum(auth.token), amount=str(auth.amount)),
            from_=checksum(auth.from_),
            spender=checksum(auth.spender),
            nonce=str(auth.nonce),
            deadline=str(auth.deadline),
            witness=WitnessFields(
                to=checksum(auth.to),
                valid_after=str(auth.valid_after),
                facilitator=None if auth.facilitator is None else checksum(auth.facilitator),
            ),
        ),
    )


def sponsored_permit_in(extensions: dict[str, Any] | None) -> SponsoredPermit | None:
    """Return the payer's permit for Permit2 in a payment's extensions; raises `BadMessage`."""
    info = fields_of(fields_of((extensions or {}).get(SPONSORED_PERMIT)).get("info"))
    if "signature" not in info:  # the offer, sent back unchanged
        return None
    try:
        return msgspec.convert(info, SponsoredPermit)
    except msgspec.ValidationError as wrong:
        raise BadMessage(f"{SPONSORED_PERMIT}: {wrong}") from None


def sponsored(
    permit: Permit, asset: Address, signature: bytes, offered: Any = None
) -> dict[str, Any]:
    """Return a payer's signed permit as the extension of a payment, beside what a 402 has
    `offered`: servers compare that.
    """
    info = SponsoredPermit(
        from_=checksum(permit.owner),
        asset=checksum(asset),
        spender=checksum(permit.spender),
        amount=str(permit.value),
        nonce=str(permit.nonce),
        deadline=str(permit.deadline),
        signature=to_hex(signature),
        version="1",
    )
    kept = fields_of(offered)
    told = fields_of(kept.get("info")) | msgspec.to_builtins(info)
    return {SPONSORED_PERMIT: {**kept, "info": told}}


def permit_of(info: SponsoredPermit) -> tuple[Permit, bytes]:
    """Return a permit and the 65-byte signature; raises `BadMessage`."""
    try:
        permit = Permit(
            parse_address(info.from_),
            parse_address(info.spender),
            _number("amount", info.amount),
            _number("nonce", info.nonce),
            _number("deadline", info.deadline),
        )
        return permit, from_hex(info.signature, 65)
    except ValueError as wrong:
        raise BadMessage(f"{SPONSORED_PERMIT}: {wrong}") from None


# --- rules ------------------------------------------------------------------------------

SPENDER = "invalid_permit2_spender"
RECIPIENT = "invalid_permit2_recipient_mismatch"
EXPIRED = "permit2_deadline_expired"
EARLY = "permit2_not_yet_valid"
AMOUNT = "permit2_amount_mismatch"
ASSET = "permit2_token_mismatch"
SIGNATURE = "invalid_permit2_signature"
ALLOWANCE = "permit2_allowance_required"
BALANCE = "permit2_insufficient_balance"
DESTINATION = "permit2_invalid_destination"
OWNER = "permit2_invalid_owner"
NONCE = "permit2_invalid_nonce"
OTHER_FACILITATOR = "upto_facilitator_mismatch"
ABOVE_MAXIMUM = "invalid_upto_evm_payload_settlement_exceeds_amount"
PERMIT_AMOUNT = "permit2_2612_amount_mismatch"
NO_PROXY = "permit2_proxy_not_deployed"


def usage_id(owner: bytes, nonce: bytes) -> str:
    """Return the payment id of a payment by Permit2, of the payer's address and 32-byte nonce."""
    return f"upto_{sha256(owner + nonce).hexdigest()[:40]}"


class Permit2Case(msgspec.Struct, frozen=True, kw_only=True):
    """A payment by Permit2, the requirements, and the facilitator who judges at `now_s`."""

    auth: Permit2Authorization
    signature: bytes
    accepted: RequirementsV2
    wanted: RequirementsV2
    network: Network
    facilitator: bytes
    now_s: int
    settles: bool
    """Whether the requirements have the used amount of `upto`, not the maximum."""
    wallet: bool | None = None
    """Whether the payer's contract accepts the signature (EIP-1271); None without a contract."""

    @property
    def is_upto(self) -> bool:
        """Whether less than the signed amount may be settled."""
        return self.wanted.scheme == UPTO

    @property
    def has_amount(self) -> bool:
        """Whether the signed amount is the required amount, or at settle of `upto` covers it."""
        wanted = parse_base(self.wanted.amount)
        return wanted <= self.auth.amount if self.takes_part else wanted == self.auth.amount

    @property
    def takes_part(self) -> bool:
        """Whether a part of the signed amount is to be settled."""
        return self.settles and self.is_upto

    def is_signed(self) -> bool:
        """Whether the payer has signed; the contract of a payer decides, if there is one."""
        if self.wallet is not None:
            return self.wallet
        try:
            digest = permit2_digest(self.auth, self.network.chain_id)
            return signer_of(digest, self.signature) == self.auth.from_
        except BadSignature:
            return False


def _methods(case: Permit2Case) -> set[Any]:
    named = (case.accepted, case.wanted)
    return {(each.extra or {}).get(METHOD, PERMIT2_METHOD) for each in named}


def _shown(address: bytes | None) -> str:
    return "none" if address is None else to_hex(address)


PERMIT2_RULES: Rules[Permit2Case, str] = (
    Rule(
        "permit2/scheme",
        lambda c: c.accepted.scheme == c.wanted.scheme and c.wanted.scheme in PROXIES,
        "unsupported_scheme",
        lambda c: unequal("scheme", c.wanted.scheme, c.accepted.scheme),
    ),
    Rule(
        "permit2/network",
        lambda c: c.accepted.network == c.wanted.network == c.network.caip2,
        "invalid_network",
        lambda c: unequal("network", c.network.caip2, f"{c.wanted.network}, {c.accepted.network}"),
    ),
    Rule(
        "permit2/method",
        lambda c: _methods(c) == {PERMIT2_METHOD},
        "unsupported_payload_type",
        lambda c: unequal(f"extra.{METHOD}", PERMIT2_METHOD, _methods(c)),
    ),
    Rule(
        "permit2/spender",
        lambda c: c.auth.spender == PROXIES[c.wanted.scheme],
        SPENDER,
        lambda c: unequal("spender", checksum(PROXIES[c.wanted.scheme]), _shown(c.auth.spender)),
    ),
    Rule(
        "permit2/owner",
        lambda c: c.auth.from_ != ZERO_ADDRESS,
        OWNER,
        lambda c: "from: wanted an account, got the zero address",
    ),
    Rule(
        "permit2/destination",
        lambda c: c.auth.to != ZERO_ADDRESS,
        DESTINATION,
        lambda c: "witness.to: wanted an account, got the zero address",
    ),
    Rule(
        "permit2/recipient",
        lambda c: _shown(c.auth.to) == c.wanted.pay_to.lower(),
        RECIPIENT,
        lambda c: unequal("witness.to", c.wanted.pay_to, _shown(c.auth.to)),
    ),
    Rule(
        "permit2/facilitator",
        lambda c: not c.is_upto or c.auth.facilitator == c.facilitator,
        OTHER_FACILITATOR,
        lambda c: unequal("witness.facilitator", _shown(c.facilitator), _shown(c.auth.facilitator)),
    ),
    Rule(
        "permit2/deadline",
        lambda c: c.auth.deadline >= c.now_s + GRACE_S,
        EXPIRED,
        lambda c: (
            f"{times('deadline', c.auth.deadline, c.now_s, SERVER_CLOCK)}; at least {GRACE_S} s "
            "must be left"
        ),
    ),
    Rule(
        "permit2/valid-after",
        lambda c: c.auth.valid_after <= c.now_s,
        EARLY,
        lambda c: times("witness.validAfter", c.auth.valid_after, c.now_s),
    ),
    Rule(
        "permit2/maximum",
        lambda c: not c.takes_part or c.has_amount,
        ABOVE_MAXIMUM,
        lambda c: unequal("amount", f"at most {c.auth.amount}", c.wanted.amount),
    ),
    Rule(
        "permit2/amount",
        lambda c: c.has_amount,
        AMOUNT,
        lambda c: unequal("permitted.amount", c.wanted.amount, c.auth.amount),
    ),
    Rule(
        "permit2/token",
        lambda c: _shown(c.auth.token) == c.wanted.asset.lower() == to_hex(c.network.asset),
        ASSET,
        lambda c: unequal(
            "token", checksum(c.network.asset), f"{_shown(c.auth.token)}, {c.wanted.asset}"
        ),
    ),
    Rule(
        "permit2/signature",
        Permit2Case.is_signed,
        SIGNATURE,
        lambda c: unequal("signature", f"one of {checksum(c.auth.from_)} over this", "another"),
    ),
)
"""A facilitator's rules in the order of the public libraries: what the message says first, then the
signature. The chain is asked for allowance and balance afterwards.
"""


class PermitCase(msgspec.Struct, frozen=True):
    """An EIP-2612 permit beside a payment by Permit2."""

    permit: Permit
    asset: str
    case: Permit2Case


SPONSORED: Rules[PermitCase, str] = (
    Rule("eip2612/from", lambda c: c.permit.owner == c.case.auth.from_, "eip2612_from_mismatch"),
    Rule(
        "eip2612/asset",
        lambda c: c.asset.lower() == c.case.wanted.asset.lower(),
        "eip2612_asset_mismatch",
    ),
    Rule("eip2612/spender", lambda c: c.permit.spender == PERMIT2, "eip2612_spender_not_permit2"),
    Rule("eip2612/amount", lambda c: c.permit.value == c.case.auth.amount, PERMIT_AMOUNT),
    Rule(
        "eip2612/deadline",
        lambda c: c.permit.deadline >= c.case.now_s + GRACE_S,
        "eip2612_deadline_expired",
    ),
)
"""The rules of the extension eip2612GasSponsoring; the proxy demands the amount."""
