"""Adversaries of a scenario: they observe requests at the sending, or transactions in the mempool,
and act.

The act of an observer runs in a task beside the scenario, and holds nothing up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from msgspec import to_builtins

from x402sim.chain.base import ChainError, Reverted
from x402sim.chain.ledger.frame import Arguments
from x402sim.events import Part
from x402sim.http.exchange import Request
from x402sim.payer.policies import NewBlock
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import encode_header
from x402sim.protocol.messages import decoded
from x402sim.protocol.x402 import PAYMENT_HEADERS, exact_payload, to_base64
from x402sim.rng import Stream
from x402sim.serving.control.messages import State
from x402sim.story.stages import Stage
from x402sim.tasks import InFlight, cancel_all
from x402sim.text.words import as_given, described
from x402sim.world.faults import Fault, ends_with
from x402sim.world.link import Asgi, Watch, is_acting
from x402sim.world.running_world import RunningWorld


async def newest_block(stage: Stage) -> NewBlock:
    """Return the chain's newest block."""
    found: State = await stage.ask("state", kind=State)
    return NewBlock(found.chain.height or 0, found.chain.timestamp or 0)


MEMPOOL = "mempool"
"""The place of an observer of transactions that wait for a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTransaction:
    """A transaction in the mempool: hash, sender and receiver, and calldata in hex.

    `call` is the function of the token that it calls; empty for any other call. `authorization` has
    the fields of a transferWithAuthorization or receiveWithAuthorization, as the x402 standard
    spells them (`from`, `to`, `value`, `validAfter`, `validBefore`, `nonce`); else it is None.
    """

    hash: str
    sender: str
    to: str
    data: str
    call: str = ""
    authorization: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A request sent to a part, or a waiting transaction, as an observer gets them.

    `at` is the part's name, or "mempool", and `at_s` the time, in Unix seconds. A request has a
    `path` and a body, `sent`. `payment_header` is the payment, for `payer.submit` and `payer.ask`,
    or a header made of the transaction's authorization; None without a payment.
    """

    at: Part
    at_s: float
    path: str = ""
    sent: bytes = b""
    payment_header: str | None = None
    transaction: WaitingTransaction | None = None

    @property
    def json(self) -> Any:
        """The JSON of the body; None if it is not JSON."""
        return decoded(self.sent)


Act = Callable[[Observed], Awaitable[object] | object]
"""The reaction of an observer: a coroutine function, or a function."""


@dataclass(slots=True)
class Observers:
    """The observers of a scenario, and their tasks."""

    parts: RunningWorld
    watches: list[Watch]
    tasks: InFlight = field(default_factory=InFlight)
    has_ended: bool = False

    def add(self, act: Act, at: Part, path: str, probability: float, rng: Stream) -> None:
        """Call `act` with what is sent to a part, or arrives in the mempool.

        Raises `ValueError` for a part or a path that the world lacks, and for the mempool of an
        existing node, or of a chain that mines at once.
        """
        context, clock = copy_context(), self.parts.clock
        of = Fault(victim=at, does="refuse", path=path)
        context.run(is_acting.set, True)

        async def run(observed: Observed) -> None:
            try:
                started = act(observed)
                if isawaitable(started):
                    await started
            except Exception as error:  # noqa: BLE001 - the user's own code: the scenario fails
                error.add_note(f"raised by {described(act)}, which observes {at}")
                self.parts.report_bug(error)

        def report(observed: Observed) -> None:
            if not self.has_ended and rng.random() < probability:
                name = f"what {described(act)} does about the {at}"
                work = asyncio.create_task(run(observed), name=name, context=context.copy())
                self.tasks.keep(work)

        def report_request(to: Part, request: Request) -> None:
            if to == at and ends_with(request.url.path, of) and not is_acting.get():
                report(
                    Observed(
                        at=at,
                        at_s=clock.now(),
                        path=request.url.path,
                        sent=request.body,
                        payment_header=payment_header(request),
                    )
                )

        if at != MEMPOOL:
            self.parts.faults.require_there(of)
            self.watches.append(report_request)
            return
        if path:
            raise ValueError(f"path: transactions of the {MEMPOOL} have none, got {as_given(path)}")
        controls = self.parts.chain.controls
        if controls is None:
            raise ValueError(
                "an existing node may not show its mempool: use the ledger, or chain='anvil'"
            )
        if controls.automine:
            raise ValueError(
                "this chain mines each transaction at once, so none waits: give the world blocks, "
                "World(block_time_s=2), or `await world.mining(False)` first"
            )
        self.parts.chain.watchers.append(_Pool(self.parts, report))

    async def end(self) -> None:
        """End all tasks, and observe nothing more."""
        self.has_ended = True
        await cancel_all(self.tasks)


class _Pool:
    """Polls the node for new transactions in the mempool, as anybody may."""

    def __init__(self, parts: RunningWorld, report: Callable[[Observed], None]) -> None:
        from x402sim.chain.node.evm_chain import LinkedNode  # most worlds need none

        self._node = LinkedNode(Asgi(parts.outside["rpc"]), "http://rpc.local")
        self._clock, self._network, self._report = parts.clock, parts.network, report
        self._filter: str | None = None
        self._known = set[str]()

    async def __call__(self) -> None:
        """Poll, after each operation of the chain; what an observer sent itself is not reported."""
        for tx_hash in await self._arrived():
            if tx_hash in self._known:
                continue
            self._known.add(tx_hash)
            found = await self._node.ask("eth_getTransactionByHash", tx_hash)
            if is_acting.get() or found is None or found.get("blockNumber") is not None:
                continue
            data, to = bytes.fromhex(found["input"].removeprefix("0x")), found.get("to")
            signed = _signed_in(data)
            self._report(
                Observed(
                    at=MEMPOOL,
                    at_s=self._clock.now(),
                    payment_header=encode_header(*signed, self._network) if signed else None,
                    transaction=WaitingTransaction(
                        hash=tx_hash,
                        sender=checksum(parse_address(found["from"])),
                        to=checksum(parse_address(to)) if to else "",
                        data=found["input"],
                        call=abi.NAMES.get(data[:4], ""),
                        authorization=(
                            to_builtins(exact_payload(*signed).authorization) if signed else None
                        ),
                    ),
                )
            )

    async def _arrived(self) -> list[str]:
        """Return the hashes that are new since the last poll; at first, all that wait.

        Also if the node has dropped the filter, because it was not polled for five minutes.
        """
        if self._filter is not None:
            try:
                return list(await self._node.ask("eth_getFilterChanges", self._filter))
            except (ChainError, Reverted):
                pass
        self._filter = await self._node.ask("eth_newPendingTransactionFilter")
        content = await self._node.ask("txpool_content")
        return [
            tx["hash"]
            for which in ("pending", "queued")
            for of_sender in content[which].values()
            for tx in of_sender.values()
        ]


_AUTHORIZED = {
    abi.TRANSFER_WITH_AUTHORIZATION: False,
    abi.RECEIVE_WITH_AUTHORIZATION: False,
    abi.TRANSFER_WITH_AUTHORIZATION_BYTES: True,
    abi.RECEIVE_WITH_AUTHORIZATION_BYTES: True,
}
"""The calls that submit an authorization, and whether the signature is packed as bytes."""


def _signed_in(data: bytes) -> tuple[Authorization, bytes] | None:
    """Return the authorization and the signature of calldata; None for any other call."""
    is_packed, arguments = _AUTHORIZED.get(data[:4]), Arguments(data[4:])
    if is_packed is None:
        return None
    try:
        signature = arguments.tail(6) if is_packed else arguments.signature(6)
        return arguments.authorization(), signature
    except Reverted:  # the token will refuse it
        return None


def payment_header(sent: Request) -> str | None:
    """Return the payment header of a request, or of the body; None without a payment."""
    named = dict(sent.headers)
    for name in PAYMENT_HEADERS.values():
        if (value := named.get(name.lower().encode())) is not None:
            return value.decode("latin-1")
    body = decoded(sent.body)
    if not isinstance(body, dict):
        return None
    if isinstance(header := body.get("paymentHeader"), str):
        return header
    payload = body.get("paymentPayload")
    return to_base64(payload) if isinstance(payload, dict) else None
