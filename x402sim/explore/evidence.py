"""What do the ledger and the journal prove about each authorization?

The ledger says what stands in the end; the journal says when an authorization was visible in a
block, when it was presented, and which service sent it to the facilitator.
"""

from dataclasses import dataclass, field
from typing import cast, get_args

from x402sim import events
from x402sim.chain.base import LogFilter, WorldChain
from x402sim.explore.case import Service
from x402sim.journal import Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, to_hex

_SERVICES = get_args(Service)
Moved = tuple[str, str, int]
"""A transfer: from, to, base units; addresses in lower case."""


@dataclass(frozen=True, slots=True)
class Use:
    """How an authorization was used up, in the chain as it stands."""

    tx_hash: str
    canceled: bool
    transfers: tuple[Moved, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The chain as it stands: the uses by nonce in hex, and every transfer."""

    uses: dict[str, Use]
    transfers: list[Moved]

    @classmethod
    async def read(cls, chain: WorldChain) -> "Ledger":
        """Read the logs of the token from the first block to the newest."""
        moved: dict[str, list[Moved]] = {}
        for log in await chain.logs(_of(abi.TRANSFER_EVENT)):
            sender, to = (to_hex(Address(topic[12:])) for topic in log.topics[1:3])
            each = sender, to, int.from_bytes(log.data)
            moved.setdefault(to_hex(log.tx_hash), []).append(each)
        uses = {}
        for log in await chain.logs(_of(abi.AUTHORIZATION_USED, abi.AUTHORIZATION_CANCELED)):
            tx_hash = to_hex(log.tx_hash)
            canceled = log.topics[0] == abi.AUTHORIZATION_CANCELED
            uses[log.topics[2].hex()] = Use(tx_hash, canceled, tuple(moved.get(tx_hash, ())))
        return cls(uses, [each for found in moved.values() for each in found])


def _of(*topics: bytes) -> LogFilter:
    return LogFilter(0, 2**63, (), (topics,))


@dataclass(frozen=True, slots=True)
class Times:
    """When things happened, in Unix milliseconds."""

    sent_ms: dict[int, int] = field(default_factory=dict)
    """When the request of each exchange was sent."""
    ended_ms: dict[int, int] = field(default_factory=dict)
    """When its answer arrived; without an answer, nothing."""
    visible: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    """When each authorization became used in a block (True), or unused again (False)."""
    canceled: set[str] = field(default_factory=set)
    """The authorizations that were cancelled in a block, even if that was undone."""
    settled_by: dict[str, set[Service]] = field(default_factory=dict)
    """The services that sent each authorization to the facilitator's settle."""

    @classmethod
    def read(cls, journal: Journal) -> "Times":
        """Read them from a journal."""
        times, used_by = cls(), dict[str, list[str]]()
        for entry in journal:
            times._note(entry.at_ms, entry.event, used_by)
        return times

    def _note(self, at_ms: int, event: events.Event, used_by: dict[str, list[str]]) -> None:
        if isinstance(event, events.RequestSent):
            self.sent_ms[event.exchange] = at_ms
            is_settle = event.actor in _SERVICES and event.path.endswith("/settle")
            if is_settle and event.authorization:
                by = self.settled_by.setdefault(event.authorization, set())
                by.add(cast(Service, event.actor))
        elif isinstance(event, events.AnswerReceived):
            self.ended_ms[event.exchange] = at_ms
        elif isinstance(event, events.AuthorizationConsumed):
            used_by.setdefault(event.tx_hash, []).append(event.authorization)
            self.visible.setdefault(event.authorization, []).append((at_ms, True))
            if event.use == "canceled":
                self.canceled.add(event.authorization)
        elif isinstance(event, events.TransactionUndone):
            for nonce in used_by.pop(event.tx_hash, ()):
                self.visible[nonce].append((at_ms, False))

    def first_used_ms(self, nonce: str) -> float:
        """Return when an authorization was first used in a block; infinite if never."""
        return min((at_ms for at_ms, used in self.visible.get(nonce, ()) if used), default=1e18)

    def is_used_at(self, nonce: str, at_ms: int) -> bool:
        """Tell whether an authorization was used in a block before this millisecond."""
        before = [used for changed_ms, used in self.visible.get(nonce, ()) if changed_ms < at_ms]
        return bool(before) and before[-1]

    def was_unused_during(self, nonce: str, exchange: int) -> bool:
        """Tell whether an authorization was unused at any moment of an exchange."""
        since, until = self.sent_ms[exchange], self.ended_ms.get(exchange, 1 << 60)
        if not self.is_used_at(nonce, since):
            return True
        changes = self.visible.get(nonce, ())
        return any(not used for at_ms, used in changes if since <= at_ms <= until)
