"""Rules of the mempool for signed transactions: geth's, in its order and its words.

Two things differ. The ledger has no EVM, so that no transaction can create a contract. And it
queues nothing behind a gap in an account's nonces, as a test node that mines at once.
"""

from collections.abc import Iterator

from x402sim.chain.base import Call, ChainError, Transaction
from x402sim.chain.fees import BLOCK_GAS_LIMIT
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.state import LedgerState
from x402sim.protocol.crypto import checksum
from x402sim.protocol.raw_transaction import SignedTransaction

MAX_BYTES = 128 * 1024
REPLACEMENT_PERCENT = 110
"""A transaction replaces one that waits if it bids this much of its fees."""


def admit(
    state: LedgerState, chain_id: int, signed: SignedTransaction, base_fee_wei: int
) -> tuple[Transaction, Transaction | None]:
    """Return a signed transaction for the mempool, and the waiting one that it replaces, if any.

    Raises `ChainError` for one that the mempool does not take.
    """
    waiting = (state.transactions[tx_hash] for tx_hash in state.waiting)
    same = signed.sender, signed.nonce
    rival = next((tx for tx in waiting if (tx.call.sender, tx.nonce) == same), None)
    fault = next(_faults(state, chain_id, signed, base_fee_wei, rival), None)
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
) -> Iterator[str]:
    """Yield what is wrong with a transaction, and the numbers that geth names after it."""
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
        told = f"address {checksum(sender)}, maxPriorityFeePerGas: {tip}, maxFeePerGas: {fee}"
        yield f"max priority fee per gas higher than max fee per gas: {told}"
    if fee < base_fee_wei:
        told = f"address {checksum(sender)}, maxFeePerGas: {fee}, baseFee: {base_fee_wei}"
        yield f"max fee per gas less than block base fee: {told}"
    if limit < (least := gas.intrinsic_of(signed)):
        yield f"intrinsic gas too low: gas {limit}, minimum needed {least}"
    if limit < (least := gas.floor(signed.data)):
        yield f"insufficient gas for floor data gas cost: gas {limit}, minimum needed {least}"
    if rival is not None and rival.hash == signed.hash:
        yield "already known"
    following = state.account_nonces.get(sender, 0)
    if rival is None and nonce < following:
        yield f"nonce too low: next nonce {following}, tx nonce {nonce}"
    if nonce > following:
        yield f"nonce too high: address {checksum(sender)}, tx: {nonce} state: {following}"
    cost, held = limit * fee + signed.value, state.native.get(sender, 0)
    if cost > held:
        told = f"balance {held}, tx cost {cost}, overshot {cost - held}"
        yield f"insufficient funds for gas * price + value: {told}"
    if rival is not None:
        old, price = rival.signed, rival.gas_price
        old_fee, old_tip = (old.max_fee_wei, old.max_tip_wei) if old else (price, price)
        bids = (fee, old_fee), (tip, old_tip)
        if any(new * 100 < last * REPLACEMENT_PERCENT for new, last in bids):
            yield "replacement transaction underpriced"
