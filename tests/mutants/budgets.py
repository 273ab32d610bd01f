"""What defects of sessions share: budgets that the service knows nothing of."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.mutants.change import Change, Service, all_of
from tests.mutants.middleware import Answer, Request, Serve, answer, free, middleware, unlocked
from tests.mutants.paying import QUOTE
from x402sim.world.assembly.recipe import Recipe


class Budgets:
    """Sessions of middleware's own, as their holders see them."""

    def __init__(self) -> None:
        self._shown: dict[str, dict[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._shown)

    def open(self, session_id: str, amount_base: int) -> dict[str, Any]:
        """Let a session be spent as if so much were left of it; return what is shown of it."""
        amount = str(amount_base)
        self._shown[session_id] = {
            "sessionId": session_id,
            "deposited": amount,
            "released": "0",
            "remaining": amount,
            "status": "active",
        }
        return self._shown[session_id]

    def close(self, session_id: str) -> None:
        """Leave a session to the service again."""
        self._shown.pop(session_id, None)

    def shown(self, session_id: str) -> dict[str, Any] | None:
        """Return one of these sessions as its holder sees it."""
        return self._shown.get(session_id)

    def debit(self, session_id: str, amount_base: int) -> bool:
        """Take an amount from a budget, or give it back if it is negative; False if it cannot."""
        shown = self._shown[session_id]
        remaining = int(shown["remaining"]) - amount_base
        if remaining < 0:
            return False
        shown["remaining"], shown["released"] = (
            str(remaining),
            str(int(shown["deposited"]) - remaining),
        )
        return True


Claimed = Callable[[Service, Budgets, Request, Answer], Awaitable[Answer]]
"""Changes the answer to a request for a session; may open budgets."""


def sessions(claimed: Claimed) -> Change:
    """Change what requests for sessions with a payment id are answered."""

    def change(recipe: Recipe) -> Recipe:
        budgets = Budgets()

        async def claim(service: Service, request: Request, serve: Serve) -> Answer:
            shown = budgets.shown(request.path.rpartition("/")[2])
            if shown is not None:
                return answer(200, shown)
            reply = await serve(request)
            has_proof = request.method == "POST" and "x-payment-id" in request.headers
            return await claimed(service, budgets, request, reply) if has_proof else reply

        async def spend(service: Service, request: Request, serve: Serve) -> Answer:
            session_id, price_base = (
                request.headers.get("x-session-id", ""),
                service.setup.quote_price_base,
            )
            if budgets.shown(session_id) is None or not budgets.debit(session_id, price_base):
                return await serve(request)
            reply = await serve(free(request))
            if reply.status != 200:
                budgets.debit(session_id, -price_base)
            return reply

        shown = middleware(claim, "/api/sessions")
        return all_of(unlocked, middleware(spend, QUOTE), shown)(recipe)

    return change


def is_session(reply: Answer) -> bool:
    """Tell whether an answer is a session."""
    body: Any = reply.json
    return reply.status in (200, 201) and "sessionId" in body
