"""A chain on any JSON-RPC node: reads the token, signs and sends transactions, waits for receipts.

Every wait has a limit. If the node did not answer when a transaction was sent, it may be mined or
not: `wait` returns the receipt, or raises `TimeoutError` (not known yet) or `ChainError` (it can
never be mined).

A node mines nothing behind a gap in an account's nonces. So each nonce is used once, and dropped
transactions are sent again. A send without an answer counts as sent, because it may have arrived;
the wait for its receipt decides.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import httpx

from x402sim.chain import reverts
from x402sim.chain.base import (
    GAS_LIMIT,
    Block,
    Call,
    ChainError,
    Log,
    LogFilter,
    Reverted,
    Transaction,
    TxReceipt,
)
from x402sim.chain.ledger import gas
from x402sim.chain.node import objects
from x402sim.chain.node.any_node import AnyNode, BadStatus, NodeGone, RpcCall, outcome_of
from x402sim.clock import Clock
from x402sim.http.exchange import Headers, Request, Transport, Url, within
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, PrivateKey, checksum, keccak256, to_hex
from x402sim.protocol.messages import BadMessage, decode, encode
from x402sim.protocol.networks import Network
from x402sim.protocol.raw_transaction import signed_legacy
from x402sim.protocol.rpc_values import Json, quantity, read_bytes, read_hash, read_quantity, shown

GAS_HEADROOM = 1.25
"""The factor of our bid above the base fee, which may rise before the next block. A price that the
node advises is not raised: it may be our own last bid, and would grow forever."""
REPLACED_AFTER = 3
"""How often in a row a node must report a transaction as replaced, as it may lag behind."""
NONCE_TRIES = 3
MOST_CALLS = 50
"""The most calls of a batch, and transactions sent together: public nodes refuse larger batches."""
_NONCE_USED = re.compile("nonce too low|invalid nonce|invalid sequence|underpriced")
_KNOWN = re.compile("already known|already imported|known transaction|already in mempool")


class Replaced(ChainError):
    """Another transaction has the nonce of our transaction, which can never be mined."""


@dataclass(slots=True)
class _Sent:
    """A transaction of ours that may not be mined yet."""

    sender: Address
    nonce: int
    raw: str
    replaced_answers: int = 0
    """How often in a row the node has reported it as replaced."""


@dataclass(slots=True, eq=False)
class _Order:
    """A transaction that shall be sent."""

    sender: Address
    to: Address | None
    data: bytes
    value: int
    gas_limit: int
    done: asyncio.Future[Hash]


class Sender:
    """The accounts with our keys, on a node, or on several nodes behind an address, of which some
    may lag.

    If a node `may_lag`, the nonces are remembered here. Otherwise the node counts them, also after
    a reorganisation or a reset.
    """

    def __init__(
        self, node: AnyNode, chain_id: int, keys: Iterable[bytes], *, may_lag: bool = True
    ) -> None:
        self._node, self._chain_id, self._may_lag = node, chain_id, may_lag
        self.keys = {key.address: key for key in map(PrivateKey, keys)}
        self._orders: list[_Order] = []  # what waits for a nonce
        self._sending: asyncio.Task[None] | None = None
        """The only task that takes nonces, while there are orders. The end of a caller does not
        cancel the task: the hash of every sent transaction gets into `sent`."""
        self._nonces: dict[Address, int] = {}
        self.sent: dict[Hash, _Sent] = {}
        """The transactions that are not known to be mined, and not given up."""

    async def send(
        self,
        sender: Address,
        to: Address | None,
        data: bytes,
        *,
        value: int = 0,
        gas_limit: int = GAS_LIMIT,
    ) -> Hash:
        """Sign a transaction and send it to the node; return its hash.

        Calls during another send wait for its end; then all are sent together, with consecutive
        nonces.
        Raises `ChainError` without a key for the account, or if the node rejects it.
        """
        if sender not in self.keys:
            raise ChainError(f"no key for {checksum(sender)}, so it cannot send")
        done: asyncio.Future[Hash] = asyncio.get_running_loop().create_future()
        self._orders.append(_Order(sender, to, data, value, gas_limit, done))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_orders())
        return await done

    async def _send_orders(self) -> None:
        """Send all orders, those of one account together; each gets its hash, or the error."""
        while self._orders:
            sender = self._orders[0].sender
            group = [order for order in self._orders if order.sender == sender][:MOST_CALLS]
            self._orders = [order for order in self._orders if order not in group]
            try:
                await self._send_group(sender, group)
            except Exception as error:  # noqa: BLE001 - the callers raise it
                for order in group:
                    _fail(order, error)
            finally:
                for order in group:
                    order.done.cancel()  # nothing is left to do, unless the task was cancelled

    async def _send_group(self, sender: Address, group: list[_Order]) -> None:
        advised, head, counted = await self._node.ask_all(
            ("eth_gasPrice",),
            ("eth_getBlockByNumber", "latest", False),
            ("eth_getTransactionCount", to_hex(sender), "pending"),
        )
        advised_wei = self._node.parse(read_quantity, "eth_gasPrice", advised)
        newest = self._node.parse(objects.block, "eth_getBlockByNumber", head)
        price_wei = max(advised_wei, int(newest.base_fee_wei * GAS_HEADROOM))
        known = self._node.parse(read_quantity, "eth_getTransactionCount", counted)
        for _ in range(NONCE_TRIES):
            nonce = await self._next_nonce(sender, known)
            group = [order for order in group if not order.done.done()]  # else sent, or given up
            if not group:
                return
            raws = [
                signed_legacy(
                    self.keys[sender],
                    self._chain_id,
                    nonce=nonce + place,
                    price_wei=price_wei,
                    gas_limit=order.gas_limit,
                    to=order.to,
                    value=order.value,
                    data=order.data,
                )
                for place, order in enumerate(group)
            ]
            if await self._submitted(sender, nonce, group, raws):
                return
            known = await self._count(sender, "pending")
        who = checksum(sender)
        for order in group:
            _fail(order, ChainError(f"{NONCE_TRIES} nonces of {who} in a row are used"))

    async def _submitted(
        self, sender: Address, nonce: int, group: list[_Order], raws: list[bytes]
    ) -> bool:
        """Send signed transactions with consecutive nonces; False if the nonce of any is used.

        A node mines no accepted transaction before the earlier nonces. So a refused transaction
        with accepted ones behind counts as sent, and `resend_if_dropped` sends the same again.
        """
        accepted = await self._submit(*map(to_hex, raws))
        last = max((place for place, each in enumerate(accepted) if each is True), default=-1)
        places = [place for place, each in enumerate(accepted) if not isinstance(each, Exception)]
        if places:
            self._nonces[sender] = nonce + places[-1] + 1
        for place, (order, raw, outcome) in enumerate(zip(group, raws, accepted, strict=True)):
            if outcome is True or (isinstance(outcome, Exception) and place < last):
                tx_hash = Hash(keccak256(raw))
                self.sent[tx_hash] = _Sent(sender, nonce + place, to_hex(raw))
                if not order.done.done():
                    order.done.set_result(tx_hash)
            elif isinstance(outcome, Exception):
                _fail(order, outcome)
        return False not in accepted

    async def _next_nonce(self, sender: Address, known: int) -> int:
        """Return an account's next nonce, given how many the node counts.

        Our transactions that the node has dropped are sent again first, to leave no gap in the
        nonces.
        """
        missing = [s for s in self.sent.values() if s.sender == sender and s.nonce >= known]
        if missing:
            await self._submit(*(sent.raw for sent in missing))
        if not self._may_lag:
            return await self._count(sender, "pending") if missing else known
        return max(known, self._nonces.get(sender, 0))

    async def _submit(self, *raws: str) -> list[bool | Exception]:
        """Send signed transactions to the node; return of each True if accepted, False for a used
        nonce, or the node's refusal.

        A send without an answer counts as accepted: it may have arrived, and if not,
        `resend_if_dropped` repeats it.
        """
        answers = await self._node.ask_each(*(("eth_sendRawTransaction", raw) for raw in raws))
        accepted: list[bool | Exception] = []
        for raw, answer in zip(raws, answers, strict=True):
            is_refused = isinstance(answer, Exception) and not isinstance(answer, NodeGone)
            if is_refused and _NONCE_USED.search(str(answer)):
                accepted.append(False)
            elif is_refused and not _KNOWN.search(str(answer)) and not await self._has(raw):
                accepted.append(answer)
            else:
                accepted.append(True)
        return accepted

    async def _has(self, raw: str) -> bool:
        """Return whether the node knows a transaction that it has refused.

        A load balancer may have passed it on to one node, and then have got an error from another.
        """
        with suppress(ChainError):
            tx_hash = to_hex(keccak256(bytes.fromhex(raw.removeprefix("0x"))))
            return await self._node.ask("eth_getTransactionByHash", tx_hash) is not None
        return False

    async def resend_if_dropped(self, tx_hash: Hash, *, is_known: bool) -> None:
        """Send an unmined transaction again if the node has dropped it: then `is_known` is False.

        Raises `Replaced` if it was replaced, and `ChainError`. `REPLACED_AFTER` answers in a row
        prove a replacement. A single answer does not: a load balancer may reach a node that lags.
        """
        sent = self.sent.get(tx_hash)
        if sent is None:
            return
        if is_known:
            sent.replaced_answers = 0
        elif await self._count(sent.sender, "latest") > sent.nonce:
            sent.replaced_answers += 1
        else:
            sent.replaced_answers = 0
            await self._submit(sent.raw)
        if sent.replaced_answers >= REPLACED_AFTER:
            who = f"nonce {sent.nonce} of {checksum(sent.sender)}"
            raise Replaced(f"{to_hex(tx_hash)} was replaced by another transaction with {who}")

    async def passes_over(self, tx_hash: Hash) -> str:
        """Return why an unmined transaction of ours will never be mined; "" if it may be.

        anvil can skip a nonce if many transactions arrive at once: this one would wait for good.
        A batch is no snapshot: the block may come between its two answers. So several in a row
        decide.
        """
        if (sent := self.sent.get(tx_hash)) is None:
            return ""
        params = to_hex(sent.sender), "latest"
        with suppress(ChainError):
            for _ in range(REPLACED_AFTER):
                receipt, counted = await self._node.ask_all(  # of a single node
                    ("eth_getTransactionReceipt", to_hex(tx_hash)),
                    ("eth_getTransactionCount", *params),
                )
                count = self._node.parse(read_quantity, "eth_getTransactionCount", counted)
                if receipt is not None or count <= sent.nonce:
                    return ""
            self.sent.pop(tx_hash, None)
            return f"nonce {sent.nonce} of {checksum(sent.sender)} is used, without it"
        return ""

    async def _count(self, account: Address, block: str) -> int:
        params = to_hex(account), block
        return await self._node.read(read_quantity, "eth_getTransactionCount", *params)


def _fail(order: _Order, error: Exception) -> None:
    if not order.done.done():
        order.done.set_exception(error)


# --- the chain --------------------------------------------------------------------------

FIRST_POLL_S, POLL_S = 0.002, 0.25
"""The first wait between two looks for a receipt, and the longest."""
REVERTED = "execution reverted"
NOT_KNOWN = "the reason is not known"
T = TypeVar("T")


class EvmChain:
    """The part of a `Chain` that is alike on every node."""

    def __init__(
        self,
        node: AnyNode,
        network: Network,
        clock: Clock,
        keys: Iterable[bytes] = (),
        *,
        may_lag: bool = True,
    ) -> None:
        self.network = network
        self.chain_id, self.token = network.chain_id, network.asset
        self.node = node
        self._clock = clock
        self._sender = Sender(node, network.chain_id, keys, may_lag=may_lag)
        self.watchers: list[Callable[[], Awaitable[None]]] = []
        """Functions to call after every operation."""

    # --- reading ---------------------------------------------------------------------

    async def height(self) -> int:
        """Return the number of the newest block."""
        return await self.node.read(read_quantity, "eth_blockNumber")

    async def block(self, which: int | Hash) -> Block | None:
        """Return a block by number or hash."""
        into = _maybe(objects.block)
        if isinstance(which, bytes):
            return await self.node.read(into, "eth_getBlockByHash", to_hex(which), False)
        if which < 0:
            return None
        return await self.node.read(into, "eth_getBlockByNumber", quantity(which), False)

    async def transaction(self, tx_hash: Hash) -> Transaction | None:
        """Return a transaction, mined or waiting."""
        into = _maybe(objects.transaction)
        return await self.node.read(into, "eth_getTransactionByHash", to_hex(tx_hash))

    async def receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return the receipt of a mined transaction."""
        return (await self._look(tx_hash))[0]

    async def _look(self, tx_hash: Hash) -> tuple[TxReceipt | None, bool]:
        """Return the receipt of a transaction, if mined, and whether the node has the
        transaction.
        """
        hash_hex = to_hex(tx_hash)
        found, tx = await self.node.ask_all(
            ("eth_getTransactionReceipt", hash_hex), ("eth_getTransactionByHash", hash_hex)
        )
        if found is None or tx is None:
            return None, not (found is None and tx is None)
        read = self.node.parse(objects.transaction, "eth_getTransactionByHash", tx)
        status = self.node.parse(
            lambda given: given.get("status"), "eth_getTransactionReceipt", found
        )
        reason = None if status == "0x1" else await self._revert_reason(read)
        into = partial(objects.receipt, call=read.call, revert_reason=reason)
        return self.node.parse(into, "eth_getTransactionReceipt", found), True

    async def _revert_reason(self, tx: Transaction) -> str:
        params = to_hex(tx.hash), {"tracer": "callTracer"}
        try:
            trace = await self.node.ask("debug_traceTransaction", *params)
        except ChainError:  # few public nodes offer traces
            # call again on the block before, then on the transaction's block, for the block's time
            number = tx.block_number or 1
            for block in (number - 1, number):
                try:
                    await self.node.ask("eth_call", objects.call_object(tx.call), quantity(block))
                except Reverted as reverted:
                    return str(reverted)
                except ChainError as unknown:
                    return f"{NOT_KNOWN}: {unknown}"
            return f"{NOT_KNOWN}: it would not have failed in the block before or in its own"
        output = read_bytes(trace.get("output") or "0x")
        return reverts.text_of(output) if output else _error(trace)

    async def logs(self, wanted: LogFilter) -> list[Log]:
        """Return the logs that pass the filter, oldest first."""
        first, last = max(0, wanted.from_block), min(await self.height(), wanted.to_block)
        if first > last:
            return []
        params = objects.filter_object(wanted, first, last)
        return await self.node.read(objects.logs, "eth_getLogs", params)

    async def call(self, call: Call) -> bytes:
        """Run a call and discard its effects; raises `Reverted`."""
        return await self.node.read(read_bytes, "eth_call", objects.call_object(call), "latest")

    async def native_balance(self, account: Address) -> int:
        """Return an account's native balance in wei."""
        return await self.node.read(read_quantity, "eth_getBalance", to_hex(account), "latest")

    async def account_nonce(self, account: Address) -> int:
        """Return the number of transactions an account has sent, waiting ones included."""
        params = to_hex(account), "pending"
        return await self.node.read(read_quantity, "eth_getTransactionCount", *params)

    async def code(self, account: Address) -> bytes:
        """Return a contract's code; empty for an account without any."""
        return await self.node.read(read_bytes, "eth_getCode", to_hex(account), "latest")

    async def balance(self, account: Address) -> int:
        """Return an account's balance of the token, in base units."""
        return int.from_bytes(await self.call(Call(account, self.token, abi.balance_of(account))))

    async def supply(self) -> int:
        """Return the token's total supply, in base units."""
        return int.from_bytes(await self.call(Call(self.token, self.token, abi.TOTAL_SUPPLY)))

    # --- sending and waiting ---------------------------------------------------------

    async def send(self, call: Call) -> Hash:
        """Sign a transaction and put it into the node's mempool.

        Raises `ChainError` without a key for the account, or if the node rejects it.
        """
        gas.require_fit(call.data)
        return await self._sender.send(call.sender, call.to, call.data, value=call.value)

    async def send_signed(self, raw: bytes) -> Hash:
        """Put a signed transaction into the node's mempool; raises `ChainError`."""
        return await self.node.read(read_hash, "eth_sendRawTransaction", to_hex(raw))

    async def wait(self, tx_hash: Hash, timeout_s: float) -> TxReceipt:
        """Return the receipt once the transaction is mined.

        Raises `TimeoutError` for a transaction that is not mined in time, but may be later, and
        `ChainError` if another transaction has used the nonce.
        """
        receipt = await self._find_receipt(tx_hash)
        try:
            async with asyncio.timeout(timeout_s):
                pause_s = FIRST_POLL_S
                while receipt is None:
                    await self._pause(pause_s)
                    pause_s = min(2 * pause_s, POLL_S)
                    receipt = await self._find_receipt(tx_hash)
        except TimeoutError:
            if why := await self._sender.passes_over(tx_hash):
                raise Replaced(f"{to_hex(tx_hash)} was passed over: {why}") from None
            raise TimeoutError(f"{to_hex(tx_hash)} was not mined within {timeout_s} s") from None
        self._sender.sent.pop(tx_hash, None)
        return receipt

    async def _find_receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return the receipt; None if there is none yet, or the node answers with an error.

        No error, such as a rate limit, means that the transaction failed: a sent transaction can be
        mined until another replaces it. Raises `Replaced`.
        """
        try:
            receipt, is_known = await self._look(tx_hash)
            if receipt is None:
                await self._sender.resend_if_dropped(tx_hash, is_known=is_known)
        except Replaced:
            raise
        except ChainError:
            return None
        return receipt

    async def _pause(self, pause_s: float) -> None:
        """Wait until a receipt may be there, longer after each look: a test node mines at once."""
        await self._clock.sleep(pause_s)

    # --- others ----------------------------------------------------------------------

    async def pass_on(self, body: bytes, *, writes: bool) -> bytes:
        """Return the node's answer to a JSON-RPC request, unchanged; raises `ChainError`.

        With `writes`, the request may change the chain, and the watchers are called.
        """
        answer = await self.node.forward(body)
        if writes:
            await self.notify()
        return answer

    async def notify(self) -> None:
        """Call the watchers, as the chain may have changed."""
        for watcher in self.watchers:
            await watcher()

    def close(self) -> None:
        """Close the connections to the node."""
        self.node.close()


def _maybe(into: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """Return a parser that passes null through."""
    return lambda given: None if given is None else into(given)


def _error(trace: Json) -> str:
    """Return the error of a call, or of the last inner call that caused a revert without data."""
    error = str(trace.get("error", ""))
    if error != REVERTED:
        return error
    calls = [call for call in trace.get("calls", ()) if call.get("error")]
    return _error(calls[-1]) if calls else ""


# --- over a link --------------------------------------------------------------------------

TIMEOUT_S = 10.0
"""The longest wait for an answer in seconds, as in viem."""
LINK_POLL_S = 2.0
"""Seconds between two polls for a receipt: one poll in the usual time of a block."""
_HEADERS: Headers = [(b"content-type", b"application/json")]


def request_of(call: RpcCall, number: int) -> Json:
    """Return a call as a JSON-RPC request, numbered by its id."""
    method, *parameters = call
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}


class LinkedNode(AnyNode):
    """A node behind a transport of a world, such as a link that faults strike."""

    def __init__(self, to: Transport, url: str) -> None:
        self.name, self._to, self._url = url, to, Url.of(httpx.URL(url))

    async def ask_all(self, *calls: RpcCall) -> list[Any]:
        """Return the results of several methods, in a request each: behind the link is a single
        node.
        """
        return [await self.ask(*call) for call in calls]

    async def ask_each(self, *calls: RpcCall) -> list[Any]:
        """Return the result of each of several methods, in a request each, or what `ask` would
        raise.
        """
        return [await self.answer(call) for call in calls]

    async def answer(self, call: RpcCall) -> Any:
        """Return the result of a method, asked alone, or what `ask` would raise."""
        try:
            body = await self.forward(encode(request_of(call, 1)))
            return outcome_of(decode(body, Any))
        except BadMessage:
            text = shown(body.decode("utf-8", "replace"))
            return NodeGone(f"{self.name} answered {call[0]} with {text}")
        except NodeGone as gone:
            return gone

    async def forward(self, body: bytes) -> bytes:
        """Return the node's answer to a JSON-RPC request unchanged; raises `NodeGone`."""
        length = b"%d" % len(body)
        headers = [(b"host", self._url.netloc), *_HEADERS, (b"content-length", length)]
        request = Request("POST", self._url, headers, body, {})
        try:
            response = await within(TIMEOUT_S, self._to.send(request))
        except TimeoutError:
            raise NodeGone(f"{self.name} did not answer within {TIMEOUT_S:g} s") from None
        except httpx.TransportError as error:
            raise NodeGone(f"no answer from {self.name}: {error!r}") from None
        if response.status != 200:
            raise BadStatus(f"no answer from {self.name}: it answered {response.status}")
        return response.content

    def close(self) -> None:
        """Do nothing: the link is not its own."""


class LinkedChain(EvmChain):
    """The part of a `Chain` that a facilitator needs, with the facilitator's key, over a link."""

    def __init__(self, node: LinkedNode, network: Network, clock: Clock, key: bytes) -> None:
        super().__init__(node, network, clock, [key], may_lag=False)

    def has_sent(self, tx_hash: Hash) -> bool:
        """Return whether we sent a transaction that is not known to be mined."""
        return tx_hash in self._sender.sent

    async def _pause(self, pause_s: float) -> None:
        await self._clock.sleep(LINK_POLL_S)
