"""What defects of sessions share: budgets that the service knows nothing of."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.mutants.change import Change, Service, all_of
from tests.mutants.middleware import Answer, Request, Serve, answer, free, middleware, unlocked
from tests.mutants.paying import QUOTE
from x402sim import World


class Budgets(dict[str, dict[str, Any]]):
    """Sessions of middleware's own, as their holders see them, by id."""

    def open(self, session_id: str, amount_base: int) -> dict[str, Any]:
        """Let a session be spent as if so much were left of it; return what is shown of it."""
        amount = str(amount_base)
        self[session_id] = {
            "sessionId": session_id,
            "deposited": amount,
            "released": "0",
            "remaining": amount,
            "status": "active",
        }
        return self[session_id]

    def debit(self, session_id: str, amount_base: int) -> bool:
        """Take an amount from a budget, or give it back if it is negative; False if it cannot."""
        shown = self[session_id]
        remaining = int(shown["remaining"]) - amount_base
        if remaining >= 0:
            released = int(shown["deposited"]) - remaining
            shown |= {"remaining": str(remaining), "released": str(released)}
        return remaining >= 0


Claimed = Callable[[Service, Budgets, Request, Answer], Awaitable[Answer]]
"""Changes the answer to a request for a session; may open budgets."""


def sessions(claimed: Claimed) -> Change:
    """Change what requests for sessions with a payment id are answered."""

    def change(world: World) -> World:
        budgets = Budgets()

        async def claim(service: Service, request: Request, serve: Serve) -> Answer:
            session_id = request.path.rpartition("/")[2]
            if session_id in budgets:
                return answer(200, budgets[session_id])
            reply = await serve(request)
            has_proof = request.method == "POST" and "x-payment-id" in request.headers
            return await claimed(service, budgets, request, reply) if has_proof else reply

        async def spend(service: Service, request: Request, serve: Serve) -> Answer:
            session_id = request.headers.get("x-session-id", "")
            price_base = service.env.quote_price_base
            if session_id not in budgets or not budgets.debit(session_id, price_base):
                return await serve(request)
            reply = await serve(free(request))
            if reply.status != 200:
                budgets.debit(session_id, -price_base)
            return reply

        shown = middleware(claim, "/api/sessions")
        return all_of(unlocked, middleware(spend, QUOTE), shown)(world)

    return change


def is_session(reply: Answer) -> bool:
    """Tell whether an answer is a session."""
    body: Any = reply.json
    return reply.status in (200, 201) and "sessionId" in body
