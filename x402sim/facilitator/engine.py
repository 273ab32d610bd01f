"""The facilitator's engine: verifies and settles payments, whatever the dialect of the request.

Verifying has no effect. Settling moves the money: the facilitator's own account sends the
transaction and pays the gas. The file of each dialect (`cronos.py`, `standard.py`) decodes requests
and encodes the outcomes.
Clauses: 1/payer-pays-no-gas, 4.1/verify-signature, 4.1/settle-on-chain, 5/exact-amount.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import msgspec
from msgspec import structs

from x402sim.chain.base import Call, ChainClient, ChainError, ChainUnavailable, Reverted, TxReceipt
from x402sim.chain.reverts import Cause, cause
from x402sim.clock import Clock
from x402sim.durations import ServiceTime, require_servers
from x402sim.protocol import abi
from x402sim.protocol.crypto import UNDEPLOYED, Address, Hash, unwrapped
from x402sim.protocol.differences import difference
from x402sim.protocol.eip3009 import Authorization, is_early, is_late, transfer_digest
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.messages import RequiredPayment
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import Permit2Authorization
from x402sim.protocol.rules import (
    STANDARD,
    VERIFICATION,
    InvalidReason,
    Rules,
    StandardTerms,
    Verification,
    first_broken,
)
from x402sim.text.arguments import AboveZero, FromZero, WholeAboveZero, WholeFromZero, explained


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class FacilitatorSettings:
    """The settings of a facilitator. Raises `ValueError` for an impossible value.

    receipt_timeout_s
        Seconds that it waits for a transaction to be mined; then settle answers 504, or in the
        dialects of the x402 standard that it is pending.
    simulates_verify
        Whether verify simulates the call, too, in the dialects of the x402 standard; the Cronos
        dialect's never does.
    simulates
        Whether it simulates a call before it sends it. If not, a transfer that the token refuses
        is mined nevertheless, and costs the facilitator its gas.
    native
        Native coins that its account has for gas, 0 or more. Without enough for the gas limit of
        another transaction, settle answers that it failed; verify does not check. Default None:
        more than it can spend.
    servers
        How many requests it serves at a time; others wait, first in, first out, and one begins when
        a server is free. Default None: all at once, and nothing queues.
    service_time_s
        Seconds that a server is busy with a request before it does the work: a number,
        `Exponential(mean_s=1.2)` of `x402sim.backends`, or whatever a latency can be. Or such by
        the end of the path, {"/settle": 1.2}: other paths take no server and never wait. The server
        stays busy until it has answered: while it waits for a block, too. Default None: 0 s.
    queue_length
        How many can wait; one more is answered 503. Default None: no limit.
    listing_delay_s
        Seconds from the first settlement of a declared resource until /discovery lists it. Hosted
        facilitators take 30 seconds to hours. Default 0: at once, like the standard's own example.
    """

    receipt_timeout_s: AboveZero = 120
    simulates: bool = True
    simulates_verify: bool = True
    native: FromZero | None = None
    servers: WholeAboveZero | None = None
    service_time_s: ServiceTime | None = None
    queue_length: WholeFromZero | None = None
    listing_delay_s: FromZero = 0

    def __post_init__(self) -> None:
        require_servers(self.servers, self.service_time_s, self.queue_length)


MINED_REASONS = (Cause.EARLY, Cause.LATE)
"""The causes reported of a failed, mined transaction. A simulated call cannot find these causes:
the call runs at the time of the newest block; any other cause is reported as `Cause.OTHER`.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Facilitator:
    """A facilitator: chain, account and rules.

    The settings may be replaced at any time.
    """

    chain: ChainClient
    clock: Clock
    network: Network
    account: Address
    started_s: float
    rules: Rules[Verification, InvalidReason] = VERIFICATION
    settings: FacilitatorSettings = field(default_factory=FacilitatorSettings)
    pending: dict[Authorization, Hash] = field(default_factory=dict)
    """The transactions that were not mined in time, in the dialects with a pending outcome."""
    under_way: dict[tuple[Address, bytes], asyncio.Event] = field(default_factory=dict)
    """By payer and nonce, the settlements that run now; the event is set when one is done."""
    pending_permits: dict[Permit2Authorization, tuple[Hash, int]] = field(default_factory=dict)
    """The same as `pending`, of payments by Permit2, with the settled amount."""


class Requested(msgspec.Struct, frozen=True):
    """The input of verify and settle.

    `network` and `terms` are of the dialect: the name of the supported network, and further
    demands.
    """

    payment: SignedPayment
    requirements: RequiredPayment
    network: str | None = None
    terms: StandardTerms | None = None


class Refused(Exception):
    """A payment that is refused in the standard's words: the word, a message, and the hash of a
    transaction mined without effect.
    """

    def __init__(self, reason: str, message: str, tx_hash: Hash | None = None) -> None:
        super().__init__(reason, message)
        self.reason, self.message, self.tx_hash = reason, message, tx_hash


class InvalidPayment(msgspec.Struct, frozen=True):
    """The payment is invalid for its requirements; `value` is the invalid value.

    `difference` has the wanted and the given value, in words.
    """

    why: InvalidReason
    value: str = ""
    difference: str | None = None


class NotTransferred(msgspec.Struct, frozen=True):
    """The payment is valid, but the token or the chain refused the transfer.

    `tx_hash` is the hash of a transaction mined without effect; `detail` has the words of the token
    or the node, and `block_s` the time of the block compared with the window, if our clock does not
    explain the refusal.
    """

    why: Cause
    tx_hash: Hash | None = None
    detail: str = ""
    block_s: int | None = None


class Transferred(msgspec.Struct, frozen=True):
    """The transfer is mined."""

    authorization: Authorization
    tx_hash: Hash
    block_number: int


class PendingTransfer(msgspec.Struct, frozen=True):
    """The transfer was sent; whether a block has mined the transaction is not known yet.

    `unavailable` says why the chain could not be queried; empty after a timeout.
    """

    tx_hash: Hash
    unavailable: str = ""


SettleResult = Transferred | NotTransferred | InvalidPayment | PendingTransfer


async def verify(facilitator: Facilitator, requested: Requested) -> InvalidPayment | None:
    """Return why a payment is invalid for its requirements, or None; nothing changes.

    If the payer is a contract, the contract decides whether the signature is valid (EIP-1271).
    Raises `ChainUnavailable` if the chain does not report whether the payer is a contract: of a
    contract, a key's signature is not enough.
    """
    network = facilitator.network
    named = replace(network, name=requested.network) if requested.network is not None else network
    case = Verification(requested.payment, requested.requirements, named, requested.terms)
    auth, signature = case.payment.authorization, case.payment.signature
    digest = transfer_digest(auth, facilitator.network.domain)
    if (wallet := await accepted_by_wallet(facilitator, auth.from_, digest, signature)) is not None:
        case = structs.replace(case, wallet=wallet)
    rules = facilitator.rules if case.terms is None else (*STANDARD, *facilitator.rules)
    broken = first_broken(rules, case)
    if broken is None:
        return None
    # the answer of Cronos's has no field for it
    detail = difference(broken.refusal, case) if case.terms else None
    return InvalidPayment(broken.refusal, broken.reason(case), detail)


async def _without_wrapper(facilitator: Facilitator, requested: Requested) -> Requested:
    """Return the same request with the signature that the token takes: of a deployed wallet, the
    signature in the wrapper (EIP-6492).

    Raises `ChainUnavailable`.
    """
    payment, inner = requested.payment, unwrapped(requested.payment.signature)
    try:
        is_deployed = bool(await facilitator.chain.code(payment.authorization.from_))
    except ChainError as unknown:
        raise ChainUnavailable(f"whether the payer is a contract is not known: {unknown}") from None
    if not is_deployed:
        return requested
    return structs.replace(requested, payment=structs.replace(payment, signature=inner))


async def accepted_by_wallet(
    facilitator: Facilitator, payer: Address, digest: bytes, signature: bytes
) -> bool | None:
    """Return whether the payer's contract accepts the signature (EIP-1271); None if it has none.

    Raises `ChainUnavailable`.
    """
    chain = facilitator.chain
    try:
        if not await chain.code(payer):
            return None
        data = abi.is_valid_signature(digest, signature)
        answer = await chain.call(Call(facilitator.account, payer, data))
    except Reverted:
        return False
    except ChainError as unknown:
        raise ChainUnavailable(f"whether the payer is a contract is not known: {unknown}") from None
    return answer[:32] == abi.VALID_SIGNATURE


async def verify_and_simulate(
    facilitator: Facilitator, requested: Requested
) -> InvalidPayment | NotTransferred | None:
    """Verify, and try the call on the chain without sending it; nothing changes.

    Raises `ChainUnavailable`.
    """
    if requested.payment.signature.endswith(UNDEPLOYED):
        requested = await _without_wrapper(facilitator, requested)
    rejected = await verify(facilitator, requested)
    if rejected is not None or not facilitator.settings.simulates_verify:
        return rejected
    simulated = await _run_call(facilitator, requested.payment, facilitator.chain.call)
    return simulated if isinstance(simulated, NotTransferred) else None


async def settle(facilitator: Facilitator, requested: Requested) -> SettleResult:
    """Verify again, simulate and send the call, and wait for the block.

    The payer pays no gas (1/payer-pays-no-gas), and if the call is simulated first, a refusal
    costs no gas either. The transfer is pending if the transaction is still not mined after the
    settings' `receipt_timeout_s`. Raises `ChainUnavailable` unless something was sent.
    """
    if requested.terms is not None:
        return await _settle_once(facilitator, requested, requested.terms)
    rejected = await verify(facilitator, requested)
    if rejected is not None:
        return rejected
    sent = await _send(facilitator, requested.payment)
    if isinstance(sent, NotTransferred):
        return sent
    return await _wait(facilitator, requested.payment.authorization, sent)


async def _settle_once(
    facilitator: Facilitator, requested: Requested, terms: StandardTerms
) -> SettleResult:
    """Settle as `settle`, in a dialect of the standard: a pending transaction is not sent again.

    A repeated request waits for the pending transaction.
    """
    if requested.payment.signature.endswith(UNDEPLOYED):
        requested = await _without_wrapper(facilitator, requested)
    payment, pending = requested.payment, facilitator.pending
    auth = payment.authorization
    tx_hash = pending.get(auth)
    if tx_hash is not None:
        # sent inside the window, perhaps mined after it: verify as of then
        terms = structs.replace(terms, now_s=auth.valid_after + 1)
        requested = structs.replace(requested, terms=terms)
    rejected = await verify(facilitator, requested)
    if rejected is not None:
        return rejected
    async with one_at_a_time(facilitator, (auth.from_, auth.nonce)):
        if tx_hash is None:
            tx_hash = pending.get(auth)
        if tx_hash is None:
            sent = await _send(facilitator, payment)
            if isinstance(sent, NotTransferred):
                return sent
            tx_hash = sent
        outcome = await _wait(facilitator, auth, tx_hash)
        pending.pop(auth, None)
        if isinstance(outcome, PendingTransfer):
            pending[auth] = tx_hash
        return outcome


async def _send(facilitator: Facilitator, payment: SignedPayment) -> Hash | NotTransferred:
    """Send the call of a payment, after a simulation unless the settings leave it out.

    Raises `ChainUnavailable`.
    """
    chain = facilitator.chain
    simulated = (chain.call,) if facilitator.settings.simulates else ()
    sent = await _run_call(facilitator, payment, *simulated, chain.send)
    return sent if isinstance(sent, NotTransferred) else Hash(sent)


@asynccontextmanager
async def one_at_a_time(
    facilitator: Facilitator, key: tuple[Address, bytes]
) -> AsyncIterator[None]:
    """Settle payments with the same payer and nonce one after the other.

    The token accepts one payment only: the transaction of a second would revert, and cost gas. A
    later payment finds the nonce used, or waits for the pending transaction. This is for the
    dialects of the standard: Cronos's has no pending outcome, and a second request sends a dropped
    transaction again.
    """
    while (other := facilitator.under_way.get(key)) is not None:
        await other.wait()
    facilitator.under_way[key] = done = asyncio.Event()
    try:
        yield
    finally:
        del facilitator.under_way[key]
        done.set()


async def _run_call(
    facilitator: Facilitator, payment: SignedPayment, *ways: Callable[[Call], Awaitable[bytes]]
) -> bytes | NotTransferred:
    """Run the call of a payment in each way, for example a simulation and then `send`.

    Return the last result, or why the first failed. Raises `ChainUnavailable`.
    """
    data = abi.transfer_with_authorization(payment.authorization, payment.signature)
    call, result = Call(facilitator.account, facilitator.network.asset, data), b""
    try:
        for run in ways:
            result = await run(call)
    except Reverted as reverted:
        return await _refused(facilitator, payment.authorization, str(reverted))
    except ChainUnavailable:
        raise
    except ChainError as error:  # not sent
        return NotTransferred(Cause.OTHER, detail=str(error))
    return result


async def _wait(
    facilitator: Facilitator, auth: Authorization, tx_hash: Hash
) -> Transferred | NotTransferred | PendingTransfer:
    receipt = await mined(facilitator, tx_hash, auth.from_, auth.to, auth.value)
    if not isinstance(receipt, TxReceipt):
        return receipt
    if receipt.revert_reason is not None:
        found = await _refused(facilitator, auth, receipt.revert_reason, receipt.block_number)
        why = found.why if found.why in MINED_REASONS else Cause.OTHER
        return structs.replace(found, why=why, tx_hash=receipt.tx_hash)
    return Transferred(auth, receipt.tx_hash, receipt.block_number)


async def mined(
    facilitator: Facilitator, tx_hash: Hash, from_: Address, to: Address, amount_base: int
) -> TxReceipt | NotTransferred | PendingTransfer:
    """Wait for a transaction; return the receipt, reverted or with this transfer."""
    try:
        receipt = await facilitator.chain.wait(tx_hash, facilitator.settings.receipt_timeout_s)
    except TimeoutError:
        return PendingTransfer(tx_hash)
    except ChainUnavailable as unavailable:
        return PendingTransfer(tx_hash, str(unavailable))
    except ChainError as error:  # replaced by another transaction
        return NotTransferred(Cause.OTHER, detail=str(error))
    if receipt.revert_reason is not None:
        return receipt
    transfer = abi.TRANSFER_EVENT, abi.word(from_), abi.word(to)
    asset, amount = facilitator.network.asset, abi.word(amount_base)
    if (asset, transfer, amount) not in [(e.address, e.topics, e.data) for e in receipt.logs]:
        # only the token's event proves this payment, no status does
        return PendingTransfer(tx_hash, "the node's receipt does not show the transfer")
    return receipt


async def _refused(
    facilitator: Facilitator, auth: Authorization, reason: str, block_number: int | None = None
) -> NotTransferred:
    """Return the cause of a revert reason, in the newest block or in another.

    If the reason is the window, find the end at fault. An authorization late in the block stays
    late. Otherwise our clock decides, and may differ from the chain's: if the window is open by our
    clock, the nearer end counts.
    """
    revert = cause(reason)
    if revert not in (Cause.EARLY, Cause.LATE, Cause.WINDOW):
        return NotTransferred(revert, detail=reason)
    chain, now_s, block = facilitator.chain, facilitator.clock.now_s(), None
    with suppress(ChainError):  # of a node that does not answer, our clock decides
        block = await chain.block(await chain.height() if block_number is None else block_number)
    block_s = block.timestamp_s if block else None
    if revert is Cause.WINDOW:
        is_nearer_opening = now_s - auth.valid_after < auth.valid_before - now_s
        is_open_later = is_early(auth, now_s) or is_nearer_opening
        is_over = block_s is not None and is_late(auth, block_s)
        revert = Cause.EARLY if is_open_later and not is_over else Cause.LATE
    is_explained = is_early if revert is Cause.EARLY else is_late
    if block_number is None and is_explained(auth, now_s):
        block_s = None  # a node may run calls at its own time, close to ours
    return NotTransferred(revert, detail=reason, block_s=block_s)
