"""Reads the transfers on a chain, for the judges of servers, facilitators and payers.

The chain is a room's own, or a world's behind its JSON-RPC address. The judge of services has no
chain: it counts by the control API of the service's world (`service.control_api`).
"""

from dataclasses import dataclass
from typing import Protocol

from x402sim.chain.base import Log, LogFilter
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, checksum, to_hex
from x402sim.suite.report.exchange import Movement

USED_EVENT = abi.AUTHORIZATION_USED
NEWEST = 1 << 62
"""The last block of a filter that ends at the newest block."""


class Reads(Protocol):
    """The part of a chain that shows what moved."""

    async def logs(self, wanted: LogFilter) -> list[Log]:
        """Return the logs that pass the filter, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A transfer of a token."""

    sender: Address
    to: Address
    amount_base: int
    token: Address
    tx_hash: str
    nonce: str = ""
    """The nonce of the authorization, in small letters; empty without an authorization."""

    @property
    def movement(self) -> Movement:
        """The transfer for a report."""
        return Movement(self.amount_base, checksum(self.to), checksum(self.sender), self.tx_hash)


async def transfers(chain: Reads, since: int, *tokens: Address) -> list[Transfer]:
    """Return the transfers after a block, without mints: of these tokens, or of every token."""
    logs = await chain.logs(
        LogFilter(since + 1, NEWEST, tokens, ((abi.TRANSFER_EVENT, USED_EVENT),))
    )
    used: dict[tuple[bytes, ...], list[str]] = {}
    found = []
    for log in logs:
        event, *indexed = log.topics
        if len(indexed) != 2:  # of another contract, whose event has the same name
            continue
        its = used.setdefault((log.tx_hash, log.address, indexed[0]), [])
        if event == USED_EVENT:  # a transfer follows
            its.append(to_hex(indexed[1]))
        elif indexed[0][12:] != ZERO_ADDRESS:
            transfer = Transfer(
                sender=Address(indexed[0][12:]),
                to=Address(indexed[1][12:]),
                amount_base=int.from_bytes(log.data[:32]),
                token=log.address,
                tx_hash=to_hex(log.tx_hash),
                nonce=its.pop(0) if its else "",
            )
            found.append(transfer)
    return found
