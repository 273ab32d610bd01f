"""Rules of the mempool for signed transactions: geth's, in its order and its words.

Three things differ. The ledger has no EVM, so that no transaction can create a contract. What bids
less than the base fee is refused, as by anvil. And where too many transactions wait behind gaps in
nonces, the newest is refused: geth forgets one without a word.
"""

from collections.abc import Collection, Iterator

from x402sim.chain.base import Call, ChainError, Transaction
from x402sim.chain.fees import BLOCK_GAS_LIMIT
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.state import LedgerState
from x402sim.protocol.crypto import checksum
from x402sim.protocol.raw_transaction import SignedTransaction

MAX_BYTES = 128 * 1024
REPLACEMENT_PERCENT = 110
"""A transaction replaces one that waits if it bids this much of its fees."""
MAX_QUEUED = 1024
"""The most transactions behind gaps, of all accounts."""


def admit(
    state: LedgerState, chain_id: int, signed: SignedTransaction, base_fee_wei: int
) -> tuple[Transaction, Transaction | None]:
    """Return a signed transaction for the mempool, and the waiting one that it replaces, if any.

    Raises `ChainError` for one that the mempool does not take.
    """
    pool = (state.transactions[tx_hash] for tx_hash in (*state.waiting, *state.queued.values()))
    others = {tx.nonce: tx for tx in pool if tx.call.sender == signed.sender}
    rival = others.pop(signed.nonce, None)
    fault = next(_faults(state, chain_id, signed, base_fee_wei, rival, others.values()), None)
    if fault is not None:
        raise ChainError(fault)
    assert signed.to is not None
    call = Call(signed.sender, signed.to, signed.data, signed.value)
    price = signed.price_wei(base_fee_wei)
    tx = Transaction(signed.hash, call, signed.nonce, signed.gas_limit, price, signed=signed)
    return tx, rival


def _faults(
    state: LedgerState,
    chain_id: int,
    signed: SignedTransaction,
    base_fee_wei: int,
    rival: Transaction | None,
    others: Collection[Transaction],
) -> Iterator[str]:
    """Yield what is wrong with a transaction, and the numbers that geth names after it; `others`
    of its sender wait already.
    """
    sender, size = signed.sender, len(signed.raw)
    fee, tip, limit, nonce = signed.max_fee_wei, signed.max_tip_wei, signed.gas_limit, signed.nonce
    if size > MAX_BYTES:
        yield f"oversized data: transaction size {size}, limit {MAX_BYTES}"
    if signed.chain_id != chain_id:
        yield f"invalid chain id for signer: have {signed.chain_id} want {chain_id}"
    if signed.to is None:
        yield "contracts cannot be created here: the ledger has no EVM; use --chain anvil"
    if limit > BLOCK_GAS_LIMIT:
        yield "exceeds block gas limit"
    if tip > fee:
        details = f"address {checksum(sender)}, maxPriorityFeePerGas: {tip}, maxFeePerGas: {fee}"
        yield f"max priority fee per gas higher than max fee per gas: {details}"
    if fee < base_fee_wei:
        details = f"address {checksum(sender)}, maxFeePerGas: {fee}, baseFee: {base_fee_wei}"
        yield f"max fee per gas less than block base fee: {details}"
    if limit < (least := gas.intrinsic_of(signed)):
        yield f"intrinsic gas too low: gas {limit}, minimum needed {least}"
    if limit < (least := gas.floor(signed.data)):
        yield f"insufficient gas for floor data gas cost: gas {limit}, minimum needed {least}"
    if rival is not None and rival.hash == signed.hash:
        yield "already known"
    following = state.next_nonces.get(sender, 0)
    if rival is None and nonce < following:
        yield f"nonce too low: next nonce {following}, tx nonce {nonce}"
    cost, held = _cost(signed), state.native.get(sender, 0)
    queued = sum(_cost(tx.signed) for tx in others if tx.signed)
    if cost + queued > held:
        parts = f"queued cost {queued}, tx cost {cost}" if cost <= held else f"tx cost {cost}"
        over = cost + queued * (cost <= held) - held
        reason = "insufficient funds for gas * price + value"
        yield f"{reason}: balance {held}, {parts}, overshot {over}"
    if rival is None and nonce > following and len(state.queued) >= MAX_QUEUED:
        yield "txpool is full"
    if rival is not None:
        old, price = rival.signed, rival.gas_price
        old_fee, old_tip = (old.max_fee_wei, old.max_tip_wei) if old else (price, price)
        bids = (fee, old_fee), (tip, old_tip)
        if any(new * 100 < last * REPLACEMENT_PERCENT for new, last in bids):
            yield "replacement transaction underpriced"


def _cost(signed: SignedTransaction) -> int:
    """Return what a transaction can cost at most, in wei."""
    return signed.gas_limit * signed.max_fee_wei + signed.value
