"""How a facilitator asks its chain's node: directly, or over a link that faults can strike.

A call of the chain costs a hundredth of a request over a link, and a settlement has five of them:
so they take the link only while a fault stands for them.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from x402sim.chain.base import Block, Call, Chain, ChainClient, TxReceipt
from x402sim.clock import Clock
from x402sim.http.exchange import Transport
from x402sim.protocol.crypto import Address, Hash, PrivateKey
from x402sim.protocol.networks import Network
from x402sim.world.transport.faults import Faults

if TYPE_CHECKING:
    from x402sim.chain.node.linked import LinkedChain


class FacilitatorNode:
    """The node of one facilitator, a `ChainClient`.

    Over the link it asks as any facilitator does: JSON-RPC, in which it signs its transactions, and
    asks again and again for their receipts.
    """

    def __init__(
        self,
        chain: Chain,
        faults: Faults,
        link: Callable[[], Transport],
        url: str,
        network: Network,
        clock: Clock,
        key: PrivateKey,
    ) -> None:
        self.token = chain.token
        self.direct = chain
        """The chain itself, which no fault strikes."""
        self._faults, self._link, self._url = faults, link, url
        self._network, self._clock, self._key = network, clock, key
        self._linked: LinkedChain | None = None

    @property
    def _now(self) -> ChainClient:
        return self._over_the_link() if self._faults.reach_facilitators else self.direct

    def _over_the_link(self) -> "LinkedChain":
        if self._linked is None:
            from x402sim.chain.node.linked import LinkedChain, LinkedNode  # it signs: heavy

            node = LinkedNode(self._link(), self._url)
            self._linked = LinkedChain(node, self._network, self._clock, self._key.secret)
        return self._linked

    def height(self) -> Coroutine[Any, Any, int]:
        """Return the number of the newest block."""
        return self._now.height()

    def block(self, which: int | Hash) -> Coroutine[Any, Any, Block | None]:
        """Return a block by number or hash."""
        return self._now.block(which)

    def code(self, account: Address) -> Coroutine[Any, Any, bytes]:
        """Return a contract's code."""
        return self._now.code(account)

    def call(self, call: Call) -> Coroutine[Any, Any, bytes]:
        """Run a call and discard its effects; raises `Reverted`."""
        return self._now.call(call)

    def send(self, call: Call) -> Coroutine[Any, Any, Hash]:
        """Put a transaction into the mempool; raises `ChainError`."""
        return self._now.send(call)

    def wait(self, tx_hash: Hash, timeout_s: float) -> Coroutine[Any, Any, TxReceipt]:
        """Return the receipt once the transaction is mined; raises `TimeoutError`.

        What was sent over the link may not have arrived, so it is waited for there, and sent again.
        """
        if self._linked is not None and self._linked.has_sent(tx_hash):
            return self._linked.wait(tx_hash, timeout_s)
        return self._now.wait(tx_hash, timeout_s)
