"""The facilitator's verify and settle for payments by Permit2: `exact`, and `upto` with the used
amount.

The table of `protocol/permit2_payments.py` judges the message; then the chain is asked for the
allowance and the balance, and the call is simulated. A nonce is one bit on the chain: the second
settlement of a payment is refused, and a pending one is waited for.
"""

from typing import NoReturn

import msgspec
from msgspec.structs import replace

from x402sim.chain.base import Call, ChainError, ChainUnavailable, Reverted
from x402sim.facilitator.approval import Approval, broadcast, missing_wei, read_approval
from x402sim.facilitator.engine import (
    Facilitator,
    NotTransferred,
    PendingTransfer,
    Refused,
    accepted_by_wallet,
    mined,
    one_at_a_time,
)
from x402sim.protocol import abi, permit2_payments as words, x402_reasons
from x402sim.protocol.crypto import Address, Hash, checksum, parse_address, unwrapped
from x402sim.protocol.eip3009 import Permit
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.money import parse_base
from x402sim.protocol.permit2 import PERMIT2, UPTO_PROXY, Permit2Authorization, permit2_digest
from x402sim.protocol.permit2_payments import Permit2Case, Permit2Payment, PermitCase
from x402sim.protocol.rules import first_broken
from x402sim.protocol.x402 import RequirementsV2


class Permit2Request(msgspec.Struct, frozen=True):
    """A request to verify or settle: `wanted` has the maximum, or the amount to settle."""

    payment: Permit2Payment
    wanted: RequirementsV2
    auth: Permit2Authorization
    signature: bytes
    permit: tuple[Permit, bytes] | None = None
    """The payer's EIP-2612 permit for Permit2, if the payer sent one."""
    permit_asset: str = ""
    approval: Approval | None = None
    """The payer's signed approval of Permit2, if the payer sent one."""

    @property
    def amount_base(self) -> int:
        """The amount to settle, in base units."""
        return parse_base(self.wanted.amount)


async def offers_upto(facilitator: Facilitator) -> bool:
    """Tell whether `upto` can be settled: the chain has the proxy."""
    try:
        return bool(await facilitator.chain.code(UPTO_PROXY))
    except ChainError:
        return False


async def takes_permits(facilitator: Facilitator) -> bool:
    """Tell whether the token takes EIP-2612 permits: the token counts their nonces."""
    asked = abi.calldata(abi.NONCES, facilitator.account)
    try:
        await facilitator.chain.call(Call(facilitator.account, facilitator.network.asset, asked))
    except (ChainError, Reverted):
        return False
    return True


def read(payment: bytes, requirements: bytes, *, settles: bool) -> Permit2Request:
    """Read a request; raises `Refused`."""
    try:
        wanted: RequirementsV2 = decode(requirements, RequirementsV2)
        amount_base = parse_base(wanted.amount)
        parse_address(wanted.pay_to)
        parse_address(wanted.asset)
    except (BadMessage, ValueError) as wrong:
        raise Refused(x402_reasons.INVALID_REQUIREMENTS, str(wrong)) from None
    may_be_nothing = settles and wanted.scheme == words.UPTO
    if wanted.max_timeout_seconds < 1 or not (amount_base or may_be_nothing):
        told = "amount and maxTimeoutSeconds: wanted more than 0"
        raise Refused(x402_reasons.INVALID_REQUIREMENTS, told)
    try:
        paid = words.permit2_payment_of(payment)
        auth, signature = words.authorization_of(paid.payload, wanted.scheme)
    except BadMessage as wrong:
        raise Refused(x402_reasons.INVALID_PAYLOAD, str(wrong)) from None
    try:
        info = words.sponsored_permit_in(paid.extensions)
        permit = None if info is None else words.permit_of(info)
    except BadMessage as wrong:
        raise Refused("invalid_eip2612_extension_format", str(wrong)) from None
    asset = "" if info is None else info.asset
    approval = read_approval(paid.extensions, auth.from_, parse_address(wanted.asset))
    return Permit2Request(paid, wanted, auth, signature, permit, asset, approval)


async def verify(facilitator: Facilitator, requested: Permit2Request) -> None:
    """Raise `Refused` unless the whole signed amount can be settled now; nothing changes.

    Raises `ChainUnavailable`.
    """
    requested = await _judge(facilitator, requested, settles=False)
    sponsored = await _allowed(facilitator, requested)
    if await _balance(facilitator, requested.auth) < requested.amount_base:
        await _short(facilitator, requested, sponsored)
    if sponsored and requested.permit is None:  # the settlement cannot be tried before the approval
        await _try_approval(facilitator, requested)
    elif facilitator.settings.simulates_verify:
        await _run(facilitator, requested, sponsored, sends=False)


async def settle(
    facilitator: Facilitator, requested: Permit2Request
) -> Hash | PendingTransfer | None:
    """Move the amount of the requirements; return the transaction's hash, None for an amount of 0.

    The signature is of the maximum. Raises `Refused`, and `ChainUnavailable` unless something was
    sent.
    """
    auth, amount_base = requested.auth, requested.amount_base
    requested = await _judge(facilitator, requested, settles=True)
    if not amount_base:
        return None
    nonce = b"permit2" + abi.word(auth.nonce)
    async with one_at_a_time(facilitator, (auth.from_, nonce)):
        sent = facilitator.pending_permits.get(auth)
        if sent is None:
            sponsored = await _allowed(facilitator, requested)
            if sponsored and requested.permit is None:
                await broadcast(facilitator, *await _try_approval(facilitator, requested))
                sponsored = False
            tx_hash = await _run(facilitator, requested, sponsored, sends=True)
            sent = Hash(tx_hash), amount_base
        outcome = await mined(facilitator, sent[0], auth.from_, auth.to, sent[1])
        facilitator.pending_permits.pop(auth, None)
        if isinstance(outcome, PendingTransfer):
            facilitator.pending_permits[auth] = sent
            return outcome
        if isinstance(outcome, NotTransferred):
            raise Refused(x402_reasons.STATE, outcome.detail or outcome.why.value)
        if outcome.revert_reason is not None:
            raise Refused(x402_reasons.STATE, outcome.revert_reason, outcome.tx_hash)
        if sent[1] != amount_base:
            told = f"nonce: used for {sent[1]} base units, in another request to settle"
            raise Refused(words.NONCE, told)
        return sent[0]


async def _judge(
    facilitator: Facilitator, requested: Permit2Request, *, settles: bool
) -> Permit2Request:
    """Raise `Refused` for the first broken rule; return the request with the signature as the
    contract takes it. What was sent inside the window may be mined after it.
    """
    auth, chain = requested.auth, facilitator.chain
    now_s = facilitator.clock.now_s()
    if settles and auth in facilitator.pending_permits:
        now_s = auth.valid_after
    signature = requested.signature
    digest = permit2_digest(auth, facilitator.network.chain_id)
    wallet = await accepted_by_wallet(facilitator, auth.from_, digest, unwrapped(signature))
    if wallet is not None:
        signature = unwrapped(signature)
    case = Permit2Case(
        auth=auth,
        signature=signature,
        accepted=requested.payment.accepted,
        wanted=requested.wanted,
        network=facilitator.network,
        facilitator=facilitator.account,
        now_s=now_s,
        settles=settles,
        wallet=wallet,
    )
    if broken := first_broken(words.PERMIT2_RULES, case):
        raise Refused(broken.refusal, broken.reason(case))
    if not await chain.code(auth.spender):
        raise Refused(words.NO_PROXY, f"no contract at {checksum(auth.spender)} on this chain")
    if requested.permit is not None:
        permit = PermitCase(requested.permit[0], requested.permit_asset, case)
        if wrong := first_broken(words.SPONSORED, permit):
            raise Refused(wrong.refusal, f"{words.SPONSORED_PERMIT}: {wrong.clause}")
    return replace(requested, signature=signature)


async def _number(facilitator: Facilitator, data: bytes, of: Address | None = None) -> int:
    """Return a number of the token, or of another contract; raises `ChainUnavailable`."""
    call = Call(facilitator.account, of or facilitator.chain.token, data)
    try:
        return int.from_bytes(await facilitator.chain.call(call))
    except (ChainError, Reverted) as unknown:
        raise ChainUnavailable(f"{checksum(call.to)} does not answer: {unknown}") from None


async def _balance(facilitator: Facilitator, auth: Permit2Authorization) -> int:
    return await _number(facilitator, abi.balance_of(auth.from_))


async def _allowance(facilitator: Facilitator, owner: Address) -> int:
    return await _number(facilitator, abi.allowance(owner, PERMIT2))


async def _allowed(facilitator: Facilitator, requested: Permit2Request) -> bool:
    """Return whether the permit or the signed approval is needed: the allowance is too small.
    Raises `Refused` if there is none that is large enough.
    """
    allowed_base = await _allowance(facilitator, requested.auth.from_)
    if allowed_base >= requested.amount_base:
        return False
    approval = requested.approval
    approved_base = 0 if approval is None else parse_base(approval.info.amount)
    if requested.permit is None and approved_base < requested.amount_base:
        _no_allowance(requested, allowed_base)
    return True


async def _try_approval(
    facilitator: Facilitator, requested: Permit2Request
) -> tuple[Approval, int]:
    """Return the signed approval and the wei that its payer lacks, if the payment lacks nothing
    else; raises `Refused`.
    """
    auth = requested.auth
    assert requested.approval is not None
    if await _balance(facilitator, auth) < requested.amount_base:
        await _short(facilitator, requested, sponsored=False)
    bitmap = await _number(facilitator, abi.nonce_bitmap(auth.from_, auth.nonce), PERMIT2)
    if bitmap >> (auth.nonce & 255) & 1:
        raise Refused(words.NONCE, "nonce: used before")
    return requested.approval, await missing_wei(facilitator, requested.approval)


def _no_allowance(requested: Permit2Request, allowed_base: int) -> NoReturn:
    told = f"allowance of {checksum(requested.auth.from_)} to Permit2: wanted "
    raise Refused(words.ALLOWANCE, f"{told}{requested.amount_base}, got {allowed_base}")


async def _run(
    facilitator: Facilitator, requested: Permit2Request, sponsored: bool, *, sends: bool
) -> bytes:
    """Simulate, and perhaps send, the call of the proxy; raises `Refused`, `ChainUnavailable`."""
    auth, chain, settings = requested.auth, facilitator.chain, facilitator.settings
    permit = requested.permit if sponsored else None
    data = abi.settle(auth, requested.amount_base, requested.signature, permit)
    call, result = Call(facilitator.account, auth.spender, data), b""
    try:
        if settings.simulates or not sends:
            result = await chain.call(call)
        if sends:
            result = await chain.send(call)
    except Reverted as reverted:
        reason = str(reverted)
        if reason.startswith("TRANSFER_FROM_FAILED"):
            await _short(facilitator, requested, sponsored)
        name = reason.partition("(")[0]
        raise Refused(REVERTS.get(name, x402_reasons.STATE), reason) from None
    except ChainUnavailable:
        raise
    except ChainError as error:
        raise Refused(x402_reasons.STATE, str(error)) from None
    return result


async def _short(facilitator: Facilitator, requested: Permit2Request, sponsored: bool) -> NoReturn:
    """Raise `Refused` for what the token lacks: the balance, or the allowance."""
    held_base = await _balance(facilitator, requested.auth)
    if held_base < requested.amount_base:
        told = f"balance of {checksum(requested.auth.from_)}: wanted {requested.amount_base}, got "
        raise Refused(words.BALANCE, f"{told}{held_base}")
    allowed_base = await _allowance(facilitator, requested.auth.from_)
    if sponsored or allowed_base < requested.amount_base:
        _no_allowance(requested, allowed_base)
    raise Refused(x402_reasons.STATE, "the token refuses the transfer")


REVERTS = {
    "InvalidNonce": words.NONCE,
    "InvalidSigner": words.SIGNATURE,
    "InvalidSignature": words.SIGNATURE,
    "InvalidSignatureLength": words.SIGNATURE,
    "InvalidContractSignature": words.SIGNATURE,
    "InvalidOwner": words.OWNER,
    "InvalidDestination": words.DESTINATION,
    "InvalidAmount": words.AMOUNT,
    "SignatureExpired": words.EXPIRED,
    "PaymentTooEarly": words.EARLY,
    "AmountExceedsPermitted": words.ABOVE_MAXIMUM,
    "UnauthorizedFacilitator": words.OTHER_FACILITATOR,
    "Permit2612AmountMismatch": words.PERMIT_AMOUNT,
}
"""The word for each revert of Permit2 and the proxies, by the error's name."""
