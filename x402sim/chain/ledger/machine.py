"""The chain as a deterministic state machine: operations in, blocks out, and no clock. Every
operation gets the time as an argument: the same operations always make the same chain. A ledger on
disk is reopened by replay, and equal seeds give equal blocks.

A signed transaction is admitted by the rules of geth's mempool, in their order and words. Three
rules differ. The ledger has no EVM, so no transaction can create a contract. A bid below the base
fee is refused, as by anvil. And a full mempool (too many transactions or bytes, or too many
transactions behind gaps in nonces) refuses the newest transaction; geth drops one silently.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from x402sim.chain.base import (
    BLOCK_GAS_LIMIT,
    GAS_LIMIT,
    Block,
    Call,
    ChainError,
    ForcedReverts,
    Log,
    LogFilter,
    Transaction,
    TxReceipt,
    require_depth,
)
from x402sim.chain.contract import MULTICALL
from x402sim.chain.ledger import gas, permit2, token as fiat
from x402sim.chain.ledger.frame import DELEGATION, Execution, Frame, Token
from x402sim.chain.ledger.multicall import NO_TRANSACTIONS, Multicall
from x402sim.chain.ledger.state import Archive, LedgerState, LogIndex, passes
from x402sim.http.limits import MAX_MINED_BYTES, MAX_POOL, MAX_POOL_BYTES, MAX_QUEUED
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, checksum, keccak256
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.permit2 import CONTRACTS
from x402sim.protocol.raw_transaction import LEGACY, SignedTransaction

REPLACEMENT_PERCENT = 110
"""A transaction replaces a waiting one by bidding this percentage of the fees."""
FULL = "txpool is full"


def admit(machine: "Machine", signed: SignedTransaction) -> tuple[Transaction, Transaction | None]:
    """Return a signed transaction for the mempool, and the replaced one, if any.

    Raises `ChainError` for a refused transaction.
    """
    pool = machine.pool()
    others = {tx.nonce: tx for tx in pool if tx.call.sender == signed.sender}
    rival = others.pop(signed.nonce, None)
    pool = [tx for tx in pool if tx is not rival]
    for fault in _faults(machine, signed, rival, others.values(), pool):
        raise ChainError(fault)
    assert signed.to is not None
    call = Call(signed.sender, signed.to, signed.data, signed.value)
    price = signed.price_wei(machine.base_fee_wei)
    tx = Transaction(signed.hash, call, signed.nonce, signed.gas_limit, price, signed=signed)
    return tx, rival


def _faults(
    machine: "Machine",
    signed: SignedTransaction,
    rival: Transaction | None,
    others: Collection[Transaction],
    pool: Collection[Transaction],
) -> Iterator[str]:
    """Yield geth's errors for a transaction, in the order of geth's checks; `others` are the
    sender's waiting transactions, and `pool` all waiting transactions.
    """
    state, sender, base_fee_wei = machine.state, signed.sender, machine.base_fee_wei
    chain_id = machine.token.network.chain_id
    fee, tip, limit, nonce = signed.max_fee_wei, signed.max_tip_wei, signed.gas_limit, signed.nonce
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
    if is_full(pool, len(signed.raw)) or (
        rival is None and nonce > following and len(state.queued) >= MAX_QUEUED
    ):
        yield FULL
    if rival is not None:
        old, price = rival.signed, rival.gas_price
        old_fee, old_tip = (old.max_fee_wei, old.max_tip_wei) if old else (price, price)
        bids = (fee, old_fee), (tip, old_tip)
        if any(new * 100 < last * REPLACEMENT_PERCENT for new, last in bids):
            yield "replacement transaction underpriced"


def is_full(pool: Collection[Transaction], size: int) -> bool:
    """Return whether a mempool has no room for another transaction of `size` bytes."""
    return len(pool) >= MAX_POOL or size + sum(map(_size, pool)) > MAX_POOL_BYTES


def _size(tx: Transaction) -> int:
    return len(tx.signed.raw if tx.signed else tx.call.data)


def _cost(signed: SignedTransaction) -> int:
    """Return what a transaction can cost at most, in wei."""
    return signed.gas_limit * signed.max_fee_wei + signed.value


def delegate(state: LedgerState, chain_id: int, signed: SignedTransaction) -> int:
    """Apply the delegations of a transaction before it runs; return the gas to refund (EIP-7702).

    Skipped are those for another chain, with an invalid signature, with another nonce than the
    account's, and of an account with other code.
    """
    refund = 0
    for each in signed.delegations:
        if (account := each.authority) is None or each.chain_id not in (0, chain_id):
            continue
        nonce, code = state.account_nonces.get(account, 0), state.codes.get(account, b"")
        if nonce != each.nonce or (code and code[:3] != DELEGATION):
            continue
        if nonce or code or state.native.get(account):
            refund += gas.DELEGATION_OF_KNOWN
        state.put(state.account_nonces, account, nonce + 1)
        following = max(nonce + 1, state.next_nonces.get(account, 0))
        state.put(state.next_nonces, account, following)
        if each.account != ZERO_ADDRESS:
            state.put(state.codes, account, DELEGATION + each.account)
        elif code:
            state.remove(state.codes, account)
    return refund


NO_CODE = b"\xfe"
"""The code of the ledger's contracts, which must have some to be contracts: the INVALID opcode,
never run.
"""
KEPT_BLOCKS = 1024
"""At least this many of the newest blocks can be reorganised."""
KEPT_ARRIVALS = 10_000
"""A filter of transactions polled after more arrivals gets only the newest."""
Which = int | LedgerState | None
"""A state: after a block, as `pending` returns it, or None for the newest block."""
Place = tuple[int, Hash, int]
"""Number and hash of a block, and the index of a transaction in it."""


class Arrivals:
    """The newest transactions in order of arrival in the mempool. A reader remembers the number of
    arrivals, so that thousands of readers hold no transactions.
    """

    def __init__(self) -> None:
        self.number = 0
        """How many transactions have arrived so far."""
        self._newest = dict[int, Hash]()

    def add(self, tx_hash: Hash) -> int:
        """Add a transaction; return its number."""
        self.number += 1
        self._newest[self.number] = tx_hash
        self._newest.pop(self.number - KEPT_ARRIVALS, None)
        return self.number

    def after(self, number: int, most: int) -> dict[int, Hash]:
        """Return up to `most` of the transactions that arrived after this number, by number."""
        first = max(number, self.number - len(self._newest)) + 1
        return {n: self._newest[n] for n in range(first, min(self.number, first + most - 1) + 1)}


class Pending(msgspec.Struct):
    """The next block, executed in part: the state after the executed transactions."""

    parent: Hash
    time_s: int
    state: LedgerState
    forced: ForcedReverts
    """The forced reverts left for the other transactions."""
    executed: tuple[Hash, ...] = ()


class Machine:
    """One chain with one token; `genesis_s` is the time of block 0, and the base fee is never above
    `most_wei`.
    """

    def __init__(
        self,
        token: Token,
        genesis_s: int,
        balances: Mapping[Address, int],
        native: Mapping[Address, int],
        most_wei: int,
    ) -> None:
        self.token = token
        self.state = LedgerState()
        self.automine = True
        self.forced_reverts = ForcedReverts()
        self._most_wei = self.gas_price_wei = most_wei
        """The present price in wei of a unit of gas, for transactions without a signature."""
        self.arrivals = Arrivals()
        self._pending: Pending | None = None
        self._block_marks: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        """The bytes of the transactions in each block outside the archive."""
        self._mined_bytes = 0  # the sum of the bytes, or more after undone blocks
        self._snapshots: dict[int, int] = {}
        self._last_snapshot = 0
        self._reorgs = 0
        self._log_index = LogIndex()
        self._archive, self._archived = Archive(), 0
        """Where the transactions of old blocks go, and how many blocks are there."""
        for account, amount_base in balances.items():
            self.state.put(self.state.balances, account, amount_base)
        self.state.native.update(native)
        contracts = (token.network.asset, MULTICALL, *CONTRACTS)
        self.state.codes |= dict.fromkeys(contracts, NO_CODE)
        self.state.minter_allowances[token.owner] = MAX_UINT256
        self.state.blacklisted[token.network.asset] = True
        self._add_block(genesis_s, [])

    @property
    def base_fee_wei(self) -> int:
        """The base fee of a block that is mined now."""
        return min(self._most_wei, self.gas_price_wei)

    # --- operations ------------------------------------------------------------------

    def send(self, at_s: int, call: Call) -> Hash:
        """Put a transaction into the mempool (with automine, mine it immediately).

        Raises `ChainError` for a sender who cannot pay, and for too large a transaction.
        """
        gas.require_fit(call.data)
        cost = GAS_LIMIT * self.gas_price_wei + call.value
        held = self.state.native.get(call.sender, 0)
        if held < cost:
            raise ChainError(
                f"insufficient funds for gas * price + value: have {held} wei, want {cost}"
            )
        if is_full(self.pool(), len(call.data)):
            raise ChainError(FULL)
        nonce = self.state.next_nonces.get(call.sender, 0)
        chain_id, value = self.token.network.chain_id.to_bytes(8), call.value.to_bytes(32)
        identity = chain_id + call.sender + nonce.to_bytes(8) + call.to + value + call.data
        tx = Transaction(Hash(keccak256(identity)), call, nonce, GAS_LIMIT, self.gas_price_wei)
        self._enqueue(tx)
        self.mine_arrived(at_s)
        return tx.hash

    def send_signed(self, at_s: int, signed: SignedTransaction) -> Hash:
        """Put a signed transaction into the mempool, as `send`; raises `ChainError`. With a nonce
        ahead, the transaction waits there for the missing nonces.
        """
        tx, rival = admit(self, signed)
        if rival:
            state = self.state
            rank = state.waiting.get(rival.hash)
            self._take_out(rival)
            state.put(state.transactions, tx.hash, tx)
            if rank is None:
                state.put(state.queued, (tx.call.sender, tx.nonce), tx.hash)
            else:
                state.put(state.waiting, tx.hash, rank)
                self.arrivals.add(tx.hash)
        else:
            self._enqueue(tx)
        self.mine_arrived(at_s)
        return tx.hash

    def mine_arrived(self, at_s: int) -> None:
        """With automine, mine the transactions that can be mined. A delegation may let others
        arrive: these are mined in the next block.
        """
        while self.automine and self.state.waiting:
            self.mine(at_s, 1)

    def set_nonce(self, at_s: int, account: Address, nonce: int) -> None:
        """Set the nonce of an account's next transaction, as `send`: it may fill a gap."""
        for nonces in (self.state.account_nonces, self.state.next_nonces):
            self.state.put(nonces, account, nonce)
        self._follow_nonce(account)
        self.mine_arrived(at_s)

    def mine(self, at_s: int, blocks: int) -> None:
        """Mine blocks; the first takes every waiting transaction, in order of arrival. Transactions
        behind a gap in the account's nonces arrive when the gap is filled.
        """
        for _ in range(blocks):
            self._add_block(at_s, self._in_order_of_arrival())

    def drop(self, only: Hash | None = None) -> bool:
        """Empty the mempool, or drop one transaction and the account's later ones; return whether
        there was any. The dropped nonces can be used again.
        """
        state, dropped = self.state, self.pool()
        if only in state.waiting:
            first = state.transactions[only]
            its = [tx for tx in dropped if tx.call.sender == first.call.sender]
            dropped = [tx for tx in its if tx.hash in state.waiting and tx.nonce >= first.nonce]
        elif only is not None:
            dropped = [tx for tx in dropped if tx.hash == only]
        for tx in reversed(dropped):
            if tx.hash in state.waiting:
                state.put(state.next_nonces, tx.call.sender, tx.nonce)
            self._take_out(tx)
        return bool(dropped)

    @property
    def snapshots(self) -> Collection[int]:
        """The ids of the snapshots that no reorganisation has deleted."""
        return self._snapshots.keys()

    def snapshot(self) -> int:
        """Take a snapshot of the state; return its id."""
        self._last_snapshot += 1
        self._snapshots[self._last_snapshot] = self.state.mark()
        return self._last_snapshot

    def revert(self, snapshot: int) -> None:
        """Revert to a snapshot, and delete all snapshots from this on; raises `ChainError`."""
        if snapshot not in self._snapshots:
            known = ", ".join(map(str, self.snapshots)) or "none"
            raise ChainError(f"no snapshot {snapshot}; there are: {known}")
        self._undo_to(self._snapshots[snapshot])
        self._snapshots = {k: v for k, v in self._snapshots.items() if k < snapshot}

    @property
    def deepest_reorg(self) -> int:
        """How many of the last blocks `reorg` can replace."""
        return min(self.state.height, len(self._block_marks))

    def reorg(self, at_s: int, depth: int, drop: Collection[Hash]) -> None:
        """Replace the last `depth` blocks by as many new ones; raises `ChainError`. Their
        transactions return to the mempool and are mined in the last new block, except those in
        `drop`.
        """
        require_depth(depth, self.deepest_reorg)
        height = self.state.height
        replaced = range(height - depth + 1, height + 1)
        mined = [tx_hash for n in replaced for tx_hash in self.state.blocks[n].tx_hashes]
        lost = [*map(self.state.transactions.__getitem__, mined), *self.pool()]
        kept = [tx for tx in lost if tx.hash not in drop]
        self._undo_to(self._block_marks[replaced[0]])
        self._reorgs += 1
        self.drop()
        for _ in range(depth - 1):
            self._add_block(at_s, [])
        for tx in kept:
            self._enqueue(replace(tx, block_number=None, block_hash=None, index=None))
        self.mine(at_s, 1)

    # --- reading ---------------------------------------------------------------------

    def at(self, block: Which) -> LedgerState:
        """Return the state after a block; raises `ChainError`, in geth's words, for a block that is
        not mined.
        """
        if isinstance(block, LedgerState):
            return block
        if block is None or block == (head := self.state.height):
            return self.state
        if block > head:
            raise ChainError(f"header not found: block {block}; the newest is block {head}")
        return self.state.after(self.state.blocks[block])

    def pool(self) -> list[Transaction]:
        """Return the transactions of the mempool: first the next block's, in order, then the
        transactions behind gaps in nonces.
        """
        hashes = *self._in_order_of_arrival(), *self.state.queued.values()
        return [self.state.transactions[tx_hash] for tx_hash in hashes]

    def pending(self, at_s: int, most: int) -> LedgerState | None:
        """Return the state after the block that would be mined now, without mining. None if more
        than `most` transactions were left to execute: call again.

        Calls share the executed transactions, until a block, the time or `forget_pending` changes
        the outcome. A new arrival is executed after the others.
        """
        block, shared = self.pending_block(at_s), self._pending
        if (
            shared is None
            or (shared.parent, shared.time_s) != (block.parent, block.timestamp_s)
            or shared.executed != block.tx_hashes[: len(shared.executed)]
        ):
            then = self.state.after(self.state.head)
            shared = Pending(block.parent, block.timestamp_s, then, self.forced_reverts)
        done, forced = len(shared.executed), self.forced_reverts
        self._pending, self.forced_reverts = None, shared.forced
        for index, tx_hash in enumerate(block.tx_hashes[done : done + most], done):
            place = block.number, block.hash, index
            tx = shared.state.transactions[tx_hash]
            self._execute(shared.state, tx, place, block.timestamp_s, 0, 0)
        shared.forced, self.forced_reverts = self.forced_reverts, forced
        shared.executed, self._pending = block.tx_hashes[: done + most], shared
        return shared.state if shared.executed == block.tx_hashes else None

    def forget_pending(self) -> None:
        """Have the next block executed again: another operation than an arrival may have changed
        the outcome.
        """
        self._pending = None

    def pending_block(self, at_s: int) -> Block:
        """Return the block that would be mined now, without a hash and not executed."""
        head = self.state.head
        waiting = tuple(self._in_order_of_arrival())
        time_s = max(at_s, head.timestamp_s)
        return Block(
            head.number + 1, Hash(bytes(32)), head.hash, time_s, waiting, 0, self.base_fee_wei
        )

    def call(
        self, call: Call, at_s: int, state: LedgerState
    ) -> tuple[bytes, Frame | permit2.Running | None]:
        """Run a call in a state and discard its effects. Return the result, and of the token and
        of Permit2 the frame; raises `Reverted`.
        """
        token = self.token
        now_s, mark = max(at_s, state.head.timestamp_s), state.mark()
        try:
            if call.value > (held := state.native.get(call.sender, 0)):
                details = f"address {checksum(call.sender)} have {held} want {call.value}"
                raise ChainError(f"insufficient funds for gas * price + value: {details}")
            if call.to == MULTICALL:
                return Multicall(token, state, now_s).answer(call.data), None
            return permit2.called(token, state, call, now_s)
        finally:
            state.undo(mark)

    def logs(self, wanted: LogFilter) -> list[Log]:
        """Return the logs that pass a filter, oldest first."""
        last = min(wanted.to_block, self.state.height)
        numbers = self._log_index.blocks(wanted, max(0, wanted.from_block), last)
        blocks = (self.state.blocks[n] for n in numbers)
        receipts = (self.receipt(tx) for block in blocks for tx in block.tx_hashes)
        return [log for each in filter(None, receipts) for log in each.logs if passes(log, wanted)]

    def transaction(self, tx_hash: Hash) -> Transaction | None:
        """Return a transaction, mined or waiting."""
        return self.state.transactions.get(tx_hash) or self._archive.get(tx_hash)[0]

    def receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return the receipt of a mined transaction."""
        return self.state.receipts.get(tx_hash) or self._archive.get(tx_hash)[1]

    def close(self) -> None:
        """Delete the archive of old transactions."""
        self._archive.close()

    # --- blocks ----------------------------------------------------------------------

    def _in_order_of_arrival(self) -> list[Hash]:
        return sorted(self.state.waiting, key=self.state.waiting.__getitem__)

    def _enqueue(self, tx: Transaction) -> None:
        """Put a transaction into the mempool, followed by the transactions that waited for this
        nonce.

        A transaction without a signature never waits: the chain chose the nonce, so a gap means
        that earlier transactions were dropped.
        """
        state, sender = self.state, tx.call.sender
        state.put(state.transactions, tx.hash, tx)
        if tx.signed and tx.nonce > state.next_nonces.get(sender, 0):
            state.put(state.queued, (sender, tx.nonce), tx.hash)
            return
        state.put(state.waiting, tx.hash, self.arrivals.add(tx.hash))
        self._release(sender, max(tx.nonce + 1, state.next_nonces.get(sender, 0)))

    def _release(self, sender: Address, following: int) -> None:
        """Let the transactions arrive that waited for the nonce before `following`."""
        state = self.state
        while (place := (sender, following)) in state.queued:
            arrived = state.queued[place]
            state.remove(state.queued, place)
            state.put(state.waiting, arrived, self.arrivals.add(arrived))
            following += 1
        state.put(state.next_nonces, sender, following)

    def _follow_nonce(self, account: Address) -> None:
        """Have the mempool follow an account's nonce that no transaction of the account has
        moved: delete the transactions whose nonces are used, and release what waited.
        """
        state, waiting = self.state, set[int]()
        for tx in self.pool():
            if tx.call.sender != account:
                continue
            if tx.nonce < state.account_nonces[account]:
                self._take_out(tx)
            elif tx.hash in state.waiting:
                waiting.add(tx.nonce)
        following = state.next_nonces[account]
        while following in waiting:
            following += 1
        self._release(account, following)

    def _take_out(self, tx: Transaction) -> None:
        state = self.state
        if tx.hash in state.waiting:
            state.remove(state.waiting, tx.hash)
        else:
            state.remove(state.queued, (tx.call.sender, tx.nonce))
        state.remove(state.transactions, tx.hash)

    def _undo_to(self, mark: int) -> None:
        self.state.undo(mark)
        height = self.state.height
        self._block_marks = {n: m for n, m in self._block_marks.items() if n <= height}
        self._sizes = {n: size for n, size in self._sizes.items() if n <= height}
        self._snapshots = {k: m for k, m in self._snapshots.items() if m <= mark}

    def _add_block(self, at_s: int, waiting: list[Hash]) -> None:
        """Mine one block at time `at_s`, or at the parent's time if later."""
        state = self.state
        number = state.height + 1
        state.record()
        self._block_marks[number] = state.mark()
        parent = state.blocks[number - 1] if number else None
        timestamp_s = max(at_s, parent.timestamp_s) if parent else at_s
        parent_hash = parent.hash if parent else Hash(bytes(32))
        seal = parent_hash + number.to_bytes(8) + timestamp_s.to_bytes(8)
        block_hash = Hash(keccak256(seal + self._reorgs.to_bytes(8) + b"".join(waiting)))
        included: list[Hash] = []
        gas_used = logs = 0
        for tx_hash in waiting:
            state.remove(state.waiting, tx_hash)
            place, tx = (number, block_hash, len(included)), state.transactions[tx_hash]
            if tx.nonce < state.account_nonces.get(tx.call.sender, 0):
                state.remove(state.transactions, tx_hash)  # a delegation has used its nonce
                continue
            tx = replace(tx, block_number=number, block_hash=block_hash, index=len(included))
            receipt = self._execute(state, tx, place, timestamp_s, gas_used, logs)
            state.put(state.transactions, tx_hash, tx)
            state.put(state.receipts, tx_hash, receipt)
            self._log_index.add(receipt.logs)
            gas_used, logs = receipt.cumulative_gas_used, logs + len(receipt.logs)
            included.append(tx_hash)
        signed = filter(None, (state.transactions[each].signed for each in included))
        authorities = dict.fromkeys(each.authority for tx in signed for each in tx.delegations)
        for account in authorities:
            if account is not None and account in state.account_nonces:  # a nonce was used
                self._follow_nonce(account)
        prices = [state.transactions[tx_hash].gas_price for tx_hash in included]
        fee = min(self.base_fee_wei, *prices) if prices else self.base_fee_wei
        block = Block(number, block_hash, parent_hash, timestamp_s, tuple(included), gas_used, fee)
        state.put(state.blocks, number, block)
        state.put(state.block_numbers, block_hash, number)
        self._sizes[number] = sum(_size(state.transactions[tx_hash]) for tx_hash in included)
        self._forget_old_marks(number)

    def _forget_old_marks(self, number: int) -> None:
        """Delete undo data beyond every reorganisation and snapshot, and move the blocks'
        transactions to the archive; once in 1024 blocks, since every mark is read, or when the
        transactions have too many bytes.
        """
        state, oldest = self.state, number - KEPT_BLOCKS
        self._mined_bytes += self._sizes[number]
        if self._mined_bytes > MAX_MINED_BYTES:
            kept = accumulate(self._sizes[n] for n in range(number, self._archived - 1, -1))
            oldest = number - sum(size <= MAX_MINED_BYTES // 2 for size in kept)
        elif number % KEPT_BLOCKS:
            return
        if self._snapshots:
            return
        self._block_marks = {n: m for n, m in self._block_marks.items() if n > oldest}
        state.forget(min(self._block_marks.values()))
        for final in range(self._archived, oldest + 1):
            for tx_hash in state.blocks[final].tx_hashes:
                self._archive.put((state.transactions.pop(tx_hash), state.receipts.pop(tx_hash)))
        self._archived = max(self._archived, oldest + 1)
        self._sizes = {n: size for n, size in self._sizes.items() if n >= self._archived}
        self._mined_bytes = sum(self._sizes.values())

    def _execute(
        self,
        state: LedgerState,
        tx: Transaction,
        place: Place,
        now_s: int,
        gas_before: int,
        logs_before: int,
    ) -> TxReceipt:
        """Run one transaction; the sender pays the gas even of a revert."""
        (number, block_hash, index), call = place, tx.call
        intrinsic = gas.intrinsic_of(tx.signed) if tx.signed else gas.intrinsic(call.data)
        state.put(state.account_nonces, call.sender, tx.nonce + 1)
        refund = delegate(state, self.token.network.chain_id, tx.signed) if tx.signed else 0
        done = self._run(state, call, now_s, tx.gas_limit - intrinsic)
        gas_used, refund = intrinsic + done.gas_used, refund + done.refund
        gas_used -= min(refund, gas_used // gas.REFUND_QUOTIENT)
        gas_used = max(gas_used, gas.floor(call.data))
        fee = min(gas_used * tx.gas_price, state.native.get(call.sender, 0))
        state.put(state.native, call.sender, state.native.get(call.sender, 0) - fee)
        logs = [
            Log(of, topics, data, number, block_hash, tx.hash, index, logs_before + i, now_s)
            for i, (of, topics, data) in enumerate(done.logs)
        ]
        return TxReceipt(
            tx_hash=tx.hash,
            block_number=number,
            block_hash=block_hash,
            index=index,
            call=call,
            gas_used=gas_used,
            gas_price=tx.gas_price,
            cumulative_gas_used=gas_before + gas_used,
            logs=tuple(logs),
            revert_reason=done.revert_reason,
            type=tx.signed.type if tx.signed else LEGACY,
        )

    def _run(self, state: LedgerState, call: Call, now_s: int, left: int) -> Execution:
        if call.to not in (self.token.network.asset, *CONTRACTS):
            return _pay(state, call)
        is_forced = self.forced_reverts.strike(call)
        if is_forced:
            self.forced_reverts = self.forced_reverts.less_one()
        if call.to in CONTRACTS:
            running = permit2.Running(self.token, state, call, now_s)
            return permit2.execute(running, left, is_forced=is_forced)
        return fiat.execute(Frame(self.token, state, call, now_s), left, is_forced=is_forced)


def _pay(state: LedgerState, call: Call) -> Execution:
    """Move the native currency of a call to an account, or to a contract that takes none."""
    native = state.native
    if call.to == MULTICALL:
        return Execution(revert_reason=NO_TRANSACTIONS)
    if native.get(call.sender, 0) < call.value:
        return Execution(revert_reason="insufficient native balance")
    if call.value:
        state.put(native, call.sender, native.get(call.sender, 0) - call.value)
        state.put(native, call.to, native.get(call.to, 0) + call.value)
    return Execution()
