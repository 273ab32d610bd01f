"""The list of agents: what the service sells.

Clauses: 4.3/list, 2.7/agent.
"""

from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import Agent
from x402sim.service.issue import QUOTE
from x402sim.service.policies.reputation import Track
from x402sim.service.state import Service


def agents(service: Service) -> list[Agent]:
    """Return the agents, their resources, prices and reputations (4.3/list, 2.7/agent)."""
    known = service.store.payments.reputation(QUOTE)
    return [
        Agent(
            id="perp-quotes",
            name="Perpetual quotes",
            description="Entry and liquidation price, funding rate and best venue of a position",
            resource=QUOTE,
            price=str(service.setup.quote_price_base),
            pay_to=checksum(service.setup.pay_to),
            reputation=service.settings.reputation.of(Track()) if known is None else known,
        )
    ]
