"""Rules of the mempool for signed transactions: geth's, in its order and its words.

Two things differ. The ledger has no EVM, so that no transaction can create a contract. And it
queues nothing behind a gap in an account's nonces, as a test node that mines at once.
"""

import msgspec

from x402sim.chain.base import Call, ChainError, Transaction
from x402sim.chain.fees import BLOCK_GAS_LIMIT
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.state import State
from x402sim.protocol.crypto import checksum
from x402sim.protocol.raw_transaction import SignedTransaction
from x402sim.protocol.rules import Rule, Rules, first_broken

MAX_BYTES = 128 * 1024
REPLACEMENT_PERCENT = 110
"""A transaction replaces one that waits if it bids this much of its fees."""


class Arrival(msgspec.Struct, frozen=True):
    """The input of the rules: a signed transaction, and what the chain knows of its sender."""

    signed: SignedTransaction
    chain_id: int
    next_nonce: int
    """The nonce after those of the sender's mined and waiting transactions."""
    held_wei: int
    base_fee_wei: int
    rival: Transaction | None
    """The waiting transaction with the same sender and nonce."""

    @property
    def cost_wei(self) -> int:
        """The most that it can cost its sender."""
        return self.signed.gas_limit * self.signed.max_fee_wei + self.signed.value

    @property
    def outbids(self) -> bool:
        """Whether it may take its rival's place, if it has one."""
        if self.rival is None:
            return True
        signed = self.rival.signed
        price = self.rival.gas_price
        fees = (signed.max_fee_wei, signed.max_tip_wei) if signed else (price, price)
        bids = self.signed.max_fee_wei, self.signed.max_tip_wei
        return all(
            bid * 100 >= fee * REPLACEMENT_PERCENT for bid, fee in zip(bids, fees, strict=True)
        )


ADMISSION: Rules[Arrival, str] = (
    Rule(
        "tx/size",
        lambda a: len(a.signed.raw) <= MAX_BYTES,
        "oversized data",
        lambda a: f"transaction size {len(a.signed.raw)}, limit {MAX_BYTES}",
    ),
    Rule(
        "tx/chain-id",
        lambda a: a.signed.chain_id == a.chain_id,
        "invalid chain id for signer",
        lambda a: f"have {a.signed.chain_id} want {a.chain_id}",
    ),
    Rule(
        "tx/call",
        lambda a: a.signed.to is not None,
        "contracts cannot be created here: the ledger has one token and no EVM",
    ),
    Rule(
        "tx/gas-limit",
        lambda a: a.signed.gas_limit <= BLOCK_GAS_LIMIT,
        "exceeds block gas limit",
    ),
    Rule(
        "tx/tip",
        lambda a: a.signed.max_tip_wei <= a.signed.max_fee_wei,
        "max priority fee per gas higher than max fee per gas",
        lambda a: (
            f"address {checksum(a.signed.sender)}, maxPriorityFeePerGas: {a.signed.max_tip_wei}, "
            f"maxFeePerGas: {a.signed.max_fee_wei}"
        ),
    ),
    Rule(
        "tx/base-fee",
        lambda a: a.signed.max_fee_wei >= a.base_fee_wei,
        "max fee per gas less than block base fee",
        lambda a: (
            f"address {checksum(a.signed.sender)}, maxFeePerGas: {a.signed.max_fee_wei}, "
            f"baseFee: {a.base_fee_wei}"
        ),
    ),
    Rule(
        "tx/intrinsic-gas",
        lambda a: a.signed.gas_limit >= gas.intrinsic_of(a.signed),
        "intrinsic gas too low",
        lambda a: f"gas {a.signed.gas_limit}, minimum needed {gas.intrinsic_of(a.signed)}",
    ),
    Rule(
        "tx/floor-gas",
        lambda a: a.signed.gas_limit >= gas.floor(a.signed.data),
        "insufficient gas for floor data gas cost",
        lambda a: f"gas {a.signed.gas_limit}, minimum needed {gas.floor(a.signed.data)}",
    ),
    Rule("tx/known", lambda a: a.rival is None or a.rival.hash != a.signed.hash, "already known"),
    Rule(
        "tx/nonce-low",
        lambda a: a.rival is not None or a.signed.nonce >= a.next_nonce,
        "nonce too low",
        lambda a: f"next nonce {a.next_nonce}, tx nonce {a.signed.nonce}",
    ),
    Rule(
        "tx/nonce-high",
        lambda a: a.signed.nonce <= a.next_nonce,
        "nonce too high",
        lambda a: (
            f"address {checksum(a.signed.sender)}, tx: {a.signed.nonce} state: {a.next_nonce}"
        ),
    ),
    Rule(
        "tx/funds",
        lambda a: a.cost_wei <= a.held_wei,
        "insufficient funds for gas * price + value",
        lambda a: f"balance {a.held_wei}, tx cost {a.cost_wei}, overshot {a.cost_wei - a.held_wei}",
    ),
    Rule("tx/replacement", lambda a: a.outbids, "replacement transaction underpriced"),
)
"""What is refused, and the numbers that geth names after it."""


def admit(
    state: State, chain_id: int, signed: SignedTransaction, base_fee_wei: int
) -> tuple[Transaction, Transaction | None]:
    """Return a signed transaction for the mempool, and the waiting one that it replaces, if any.

    Raises `ChainError` for one that the mempool does not take.
    """
    waiting = (state.transactions[tx_hash] for tx_hash in state.waiting)
    same = signed.sender, signed.nonce
    rival = next((tx for tx in waiting if (tx.call.sender, tx.nonce) == same), None)
    case = Arrival(
        signed,
        chain_id,
        next_nonce=state.account_nonces.get(signed.sender, 0),
        held_wei=state.native.get(signed.sender, 0),
        base_fee_wei=base_fee_wei,
        rival=rival,
    )
    broken = first_broken(ADMISSION, case)
    if broken:
        raise ChainError(": ".join(filter(None, (broken.refusal, broken.reason(case)))))
    assert signed.to is not None
    call = Call(signed.sender, signed.to, signed.data, signed.value)
    price = signed.price_wei(base_fee_wei)
    tx = Transaction(signed.hash, call, signed.nonce, signed.gas_limit, price, signed=signed)
    return tx, rival
