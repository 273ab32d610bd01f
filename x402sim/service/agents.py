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
    known, setup = service.store.payments.reputation(QUOTE), service.setup
    reputation = setup.settings.reputation.of(Track()) if known is None else known
    return [agent(setup.quote_price_base, checksum(setup.pay_to), reputation)]


def agent(price_base: int, pay_to: str, reputation: int) -> Agent:
    """Return the agent that sells quotes."""
    return Agent(
        id="perp-quotes",
        name="Perpetual quotes",
        description="Entry and liquidation price, funding rate and best venue of a position",
        resource=QUOTE,
        price=str(price_base),
        pay_to=pay_to,
        reputation=reputation,
    )
