"""What do defects of sessions share? Budgets that the service knows nothing of."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.mutants.change import Change, all_of
from tests.mutants.middleware import Answer, Request, Serve, free, middleware, unlocked
from x402sim.service.issue import QUOTE, SESSIONS
from x402sim.service.state import Service
from x402sim.world.assembly.recipe import Recipe


class Budgets:
    """Sessions of middleware's own: what is left of each, in base units."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._left)

    def open(self, session_id: str, amount_base: int) -> None:
        """Let a session be spent, as if so much were left of it."""
        self._left[session_id] = amount_base

    def pays(self, request: Request, price_base: int) -> bool:
        """Debit the budget that a request names, if it is one of these and has enough."""
        session_id = request.headers.get("x-session-id", "")
        if self._left.get(session_id, 0) < price_base:
            return False
        self._left[session_id] -= price_base
        return True

    def has(self, request: Request) -> bool:
        """Tell whether a request names one of these budgets."""
        return request.headers.get("x-session-id") in self._left


Claimed = Callable[[Service, Budgets, Request, Answer], Awaitable[Answer]]
"""Changes the answer to a request for a session; may open budgets."""


def sessions(claimed: Claimed) -> Change:
    """Change what requests for sessions with a payment id are answered."""

    def change(recipe: Recipe) -> Recipe:
        budgets = Budgets()

        async def claim(service: Service, request: Request, serve: Serve) -> Answer:
            reply = await serve(request)
            has_proof = request.method == "POST" and "x-payment-id" in request.headers
            return await claimed(service, budgets, request, reply) if has_proof else reply

        async def spend(service: Service, request: Request, serve: Serve) -> Answer:
            if not budgets.has(request):
                return await serve(request)
            is_paid = budgets.pays(request, service.settings.quote_price_base)
            return await serve(free(request) if is_paid else request)

        return all_of(unlocked, middleware(spend, QUOTE), middleware(claim, SESSIONS))(recipe)

    return change


def is_session(reply: Answer) -> bool:
    """Tell whether an answer is a session."""
    body: Any = reply.json
    return reply.status in (200, 201) and "sessionId" in body
