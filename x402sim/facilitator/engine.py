"""How a payment is verified, and how it is settled: the facilitator's two verbs.

Verifying reads and has no effect. Settling moves the money: the facilitator's own
account sends the transaction and pays the gas.
Clauses: 1/payer-pays-no-gas, 4.1/verify-signature, 4.1/settle-on-chain, 5/exact-amount.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from x402sim.chain.base import Call, Chain, ChainError, Receipt, Reverted
from x402sim.chain.reverts import Cause, cause
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, to_hex
from x402sim.protocol.eip3009 import Authorization, is_early, is_late
from x402sim.protocol.header import authorization_of, decode_header
from x402sim.protocol.messages import (
    BadMessage,
    Failed,
    SettleAnswer,
    Settled,
    VerifyAnswer,
    VerifyRequest,
)
from x402sim.protocol.networks import Network
from x402sim.protocol.rules import VERIFICATION, Rules, Verification, invalid_reason

BAD_HEADER = "Invalid Base64 paymentHeader"
BAD_SIGNATURE = "Invalid EIP-3009 signature"
FAILED_ON_CHAIN = "Transaction failed on-chain"
TEXTS = {
    Cause.NONCE: "Authorization already used",
    Cause.LATE: "Authorization expired",
    Cause.EARLY: "Authorization not yet valid",
    Cause.SIGNATURE: "Invalid signature",
    Cause.BALANCE: "ERC20: transfer amount exceeds balance",
}
"""What a token refuses for, in the facilitator's words; anything else failed on-chain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facilitator:
    """A facilitator at work: on which chain, from which account, by which rules."""

    chain: Chain
    clock: Clock
    network: Network
    account: Address
    started_s: float
    rules: Rules[Verification, str] = VERIFICATION
    receipt_timeout_s: float = 120


def read(facilitator: Facilitator, request: VerifyRequest) -> Verification:
    """Decode the header and lay it beside the requirements; raises `BadMessage`."""
    header = decode_header(request.payment_header)
    authorization, signature = authorization_of(header)
    return Verification(
        scheme=header.scheme,
        network=header.network,
        asset=header.payload.asset,
        authorization=authorization,
        signature=signature,
        requirements=request.payment_requirements,
        supported=facilitator.network,
    )


def verify(facilitator: Facilitator, request: VerifyRequest) -> VerifyAnswer:
    """Tell whether a payment is valid for its requirements; nothing changes."""
    try:
        reason = invalid_reason(facilitator.rules, read(facilitator, request))
    except BadMessage:
        reason = BAD_HEADER
    return VerifyAnswer(is_valid=reason is None, invalid_reason=reason)


async def settle(facilitator: Facilitator, request: VerifyRequest) -> SettleAnswer:
    """Verify once more, try the call, send it, and wait until it is mined.

    The payer pays no gas (1/payer-pays-no-gas), and as it is tried first, a refusal costs
    none either. Raises `TimeoutError` if the
    transaction is still not mined after `receipt_timeout_s`.
    """
    try:
        payment = read(facilitator, request)
    except BadMessage:
        return _failed(facilitator, BAD_HEADER)
    reason = invalid_reason(facilitator.rules, payment)
    if reason is not None:
        return _failed(facilitator, "Invalid signature" if reason == BAD_SIGNATURE else reason)
    data = abi.transfer_with_authorization(payment.authorization, payment.signature)
    call = Call(facilitator.account, facilitator.network.asset, data)
    try:
        await facilitator.chain.call(call)
        tx_hash = await facilitator.chain.send(call)
        receipt = await facilitator.chain.wait(tx_hash, facilitator.receipt_timeout_s)
    except Reverted as reverted:
        seen = cause(str(reverted))
        if seen is Cause.WINDOW:  # it does not tell early from late
            seen = await _early_or_late(facilitator, payment.authorization)
        return _failed(facilitator, TEXTS.get(seen, FAILED_ON_CHAIN))
    except ChainError:  # it was not sent, or another transaction took its place
        return _failed(facilitator, FAILED_ON_CHAIN)
    if not receipt.succeeded:
        return _failed(facilitator, FAILED_ON_CHAIN)
    return _settled(facilitator, payment.authorization, receipt)


async def _early_or_late(facilitator: Facilitator, auth: Authorization) -> Cause:
    """Return which end of its window an authorization is outside of.

    What is late in the newest block stays late. Otherwise our clock tells, which may differ
    from the chain's: if it sees the window open, the nearer end is the one.
    """
    chain, now_s = facilitator.chain, facilitator.clock.now_s()
    head = await chain.block(await chain.height())
    if head and is_late(auth, head.timestamp_s):
        return Cause.LATE
    is_nearer_opening = now_s - auth.valid_after < auth.valid_before - now_s
    return Cause.EARLY if is_early(auth, now_s) or is_nearer_opening else Cause.LATE


def _settled(facilitator: Facilitator, auth: Authorization, receipt: Receipt) -> Settled:
    return Settled(
        x402_version=1,
        tx_hash=to_hex(receipt.tx_hash),
        from_=checksum(auth.from_),
        to=checksum(auth.to),
        value=str(auth.value),
        block_number=receipt.block_number,
        network=facilitator.network.name,
        timestamp=_iso(facilitator.clock),
    )


def _failed(facilitator: Facilitator, reason: str) -> Failed:
    return Failed(
        x402_version=1,
        network=facilitator.network.name,
        timestamp=_iso(facilitator.clock),
        error=reason,
    )


def _iso(clock: Clock) -> str:
    moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
