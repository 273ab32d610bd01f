"""Verifies and settles payments.

Verifying has no effect. Settling moves the money: the facilitator's own account sends the
transaction and pays the gas. The outcomes are independent of the wire: the file of a dialect
(`cronos.py`) encodes them.
Clauses: 1/payer-pays-no-gas, 4.1/verify-signature, 4.1/settle-on-chain, 5/exact-amount.
"""

from dataclasses import dataclass, field

import msgspec

from x402sim.chain.base import Call, Chain, ChainError, ChainUnavailable, Reverted
from x402sim.chain.reverts import Cause, cause
from x402sim.clock import Clock
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash
from x402sim.protocol.eip3009 import Authorization, is_early, is_late
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.messages import RequiredPayment
from x402sim.protocol.networks import Network
from x402sim.protocol.rules import VERIFICATION, Invalid, Rules, Verification, first_broken


MINED_REASONS = (Cause.EARLY, Cause.LATE)
"""Why a mined transaction failed, where its reason is told: what a node cannot see when it tries
the call, as it does so at the time of its newest block. Any other failed on the chain.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facilitator:
    """A facilitator: its chain, its account and its rules."""

    chain: Chain
    clock: Clock
    network: Network
    account: Address
    started_s: float
    rules: Rules[Verification, Invalid] = VERIFICATION
    settings: FacilitatorSettings = field(default_factory=FacilitatorSettings)


class Asked(msgspec.Struct, frozen=True):
    """The input of verify and settle; `payment` is None if its header cannot be decoded."""

    payment: SignedPayment | None
    requirements: RequiredPayment


class Rejected(msgspec.Struct, frozen=True):
    """The payment is invalid for its requirements; `value` is the invalid value."""

    why: Invalid
    value: str = ""


class NotTransferred(msgspec.Struct, frozen=True):
    """The payment is valid, but the token or the chain refused the transfer."""

    why: Cause


class Transferred(msgspec.Struct, frozen=True):
    """The transfer is mined."""

    authorization: Authorization
    tx_hash: Hash
    block_number: int


SettleResult = Transferred | NotTransferred | Rejected


def verify(facilitator: Facilitator, asked: Asked) -> Rejected | None:
    """Return why a payment is invalid for its requirements, or None; nothing changes."""
    if asked.payment is None:
        return Rejected(Invalid.HEADER)
    case = Verification(asked.payment, asked.requirements, facilitator.network)
    broken = first_broken(facilitator.rules, case)
    return Rejected(broken.refusal, broken.reason(case)) if broken else None


async def settle(facilitator: Facilitator, asked: Asked) -> SettleResult:
    """Verify again, simulate the call, send it, and wait until it is mined.

    The payer pays no gas (1/payer-pays-no-gas), and if the call is simulated first, a refusal
    costs no gas either. Raises `TimeoutError` if the transaction is still not mined after
    the settings' `receipt_timeout_s`, and `ChainUnavailable`.
    """
    rejected = verify(facilitator, asked)
    if rejected is not None or asked.payment is None:
        return rejected or Rejected(Invalid.HEADER)
    payment = asked.payment
    data = abi.transfer_with_authorization(payment.authorization, payment.signature)
    call = Call(facilitator.account, facilitator.network.asset, data)
    try:
        if facilitator.settings.simulates:
            await facilitator.chain.call(call)
        tx_hash = await facilitator.chain.send(call)
        receipt = await facilitator.chain.wait(tx_hash, facilitator.settings.receipt_timeout_s)
    except Reverted as reverted:
        return await _refused(facilitator, payment.authorization, str(reverted))
    except ChainUnavailable:
        raise
    except ChainError:  # it was not sent, or another transaction replaced it
        return NotTransferred(Cause.OTHER)
    if receipt.revert_reason is not None:
        outcome = await _refused(facilitator, payment.authorization, receipt.revert_reason)
        return outcome if outcome.why in MINED_REASONS else NotTransferred(Cause.OTHER)
    return Transferred(payment.authorization, receipt.tx_hash, receipt.block_number)


async def _refused(facilitator: Facilitator, auth: Authorization, reason: str) -> NotTransferred:
    """Return the outcome for a revert reason."""
    seen = cause(reason)
    if seen is Cause.WINDOW:  # this token does not distinguish early and late
        seen = await _early_or_late(facilitator, auth)
    return NotTransferred(seen)


async def _early_or_late(facilitator: Facilitator, auth: Authorization) -> Cause:
    """Return whether an authorization is early or late.

    If it is late in the newest block, it stays late. Otherwise our clock decides, which may differ
    from the chain's: if the window is open by our clock, the nearer end counts.
    """
    chain, now_s = facilitator.chain, facilitator.clock.now_s()
    head = await chain.block(await chain.height())
    if head and is_late(auth, head.timestamp_s):
        return Cause.LATE
    is_nearer_opening = now_s - auth.valid_after < auth.valid_before - now_s
    return Cause.EARLY if is_early(auth, now_s) or is_nearer_opening else Cause.LATE
