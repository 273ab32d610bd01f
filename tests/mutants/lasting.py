"""Defects that only time, a restart or another payment of the same payer shows."""

from typing import Any

from tests.mutants.change import Change, Service, all_of
from tests.mutants.gate import gate
from tests.mutants.middleware import Answer, Request, Serve, answer, middleware
from tests.mutants.mutant import into
from tests.mutants.paying import PAY, QUOTE, SESSIONS
from tests.mutants.required import required, requirements
from tests.mutants.session import session
from tests.mutants.wrapper import Wrapper, collaborator
from x402sim.world.assembly.recipe import Recipe

FORGETS_MS = 100_000
"""After this, a forgetful service knows nothing of a payment."""


def deposit_shows(**fields: str) -> Change:
    """Show other requirements in the 402 of a deposit, and take them back as they are meant."""

    def change(recipe: Recipe) -> Recipe:
        meant: dict[str, Any] = {}

        async def offer(_: Service, request: Request, serve: Serve) -> Answer:
            reply = await serve(request)
            body = reply.json
            if reply.status != 402:
                return reply
            meant[body["paymentId"]] = body["paymentRequirements"]
            shown = {**body["paymentRequirements"], **fields}
            network = fields.get("network", body["network"])
            return answer(402, {**body, "paymentRequirements": shown, "network": network})

        async def pay(_: Service, request: Request, serve: Serve) -> Answer:
            asked = request.json
            if request.field("paymentId") not in meant or not isinstance(
                asked.get("paymentRequirements"), dict
            ):
                return await serve(request)
            before = {name: meant[asked["paymentId"]][name] for name in fields}
            wanted = {**asked["paymentRequirements"], **before}
            return await serve(request.sending({**asked, "paymentRequirements": wanted}))

        return all_of(middleware(offer, SESSIONS), middleware(pay, PAY))(recipe)

    return change


class SessionsInMemory(Wrapper):
    """A store whose sessions are gone when the service has restarted."""

    begun_ms = -1
    """When the service was restarted last."""

    def can_pay(self, session_id: str, *of: Any) -> bool:
        return self._is_known(session_id) and bool(self.inner.can_pay(session_id, *of))

    def debit(self, session_id: str, *of: Any) -> Any:
        return self.inner.debit(session_id, *of) if self._is_known(session_id) else None

    def _is_known(self, session_id: str) -> bool:
        found = self.inner.get(session_id)
        if found is None:
            return False
        deposit = self.service.store.payments.get(found.payment_id)
        return deposit is not None and bool(deposit.record.timestamp > self.begun_ms)


# --- the defects ---

required("no-description", "2.1/description-shown", "A 402 has no description.",
    requirements(description=None))  # fmt: skip
required("deposit-on-another-network", "4.4/deposit-402", "The 402 of a deposit names the mainnet.",
    deposit_shows(network="cronos-mainnet"))  # fmt: skip
required("deposit-for-the-quote", "4.4/deposit-402",
    "The 402 of a deposit has the resource of a quote.", deposit_shows(resource=QUOTE))  # fmt: skip


@gate.defect("what-the-payer-has-paid-opens", "5/resource-binding", into("payments"))
class KnowsThePayer(Wrapper):
    """A payment opens whatever its payer has paid for with another one."""

    def mark_settled(self, attempt: int, *of: Any) -> bool:
        is_settled: bool = self.inner.mark_settled(attempt, *of)
        record = self.inner.attempt(attempt).record
        self.paid = {*self.paid, (record.from_address, record.resource_url)}
        return is_settled

    paid: set[tuple[str, str]] = set()

    def grants(self, payment_id: str, resource: str) -> bool:
        stored = self.inner.get(payment_id)
        is_settled = stored is not None and stored.record.status == "settled"
        if is_settled and (stored.record.from_address, resource) in self.paid:
            return True
        return bool(self.inner.grants(payment_id, resource))


@gate.defect(
    "payments-are-forgotten",
    "5/stored-records",
    broad="whatever looks at a payment after minutes finds nothing",
)
def forgets(recipe: Recipe) -> Recipe:
    """Cached entitlement and record are dropped after a hundred seconds."""
    served_ms: dict[str, int] = {}

    class Forgets(Wrapper):
        """A cache, or a store, that grants for a while only."""

        def grants(self, payment_id: str, *of: Any) -> bool:
            stored = self.service.store.payments.get(payment_id)
            now_ms = self.service.clock.now_ms()
            if stored is not None:
                served_ms.setdefault(payment_id, stored.record.timestamp)
            age_ms = now_ms - served_ms.get(payment_id, now_ms)
            return age_ms < FORGETS_MS and bool(self.inner.grants(payment_id, *of))

    return collaborator(entitlements=Forgets, payments=Forgets)(recipe)


@session.defect("ids-count-up-from-1000", "kit/2.6/session-ids")
def counting(recipe: Recipe) -> Recipe:
    """Session ids are session_1000, session_1001 and so on."""
    real: dict[str, str] = {}

    def shown(session_id: str) -> str:
        names = {it: name for name, it in real.items()}
        name = names.get(session_id, f"session_{1000 + len(real)}")
        real[name] = session_id
        return name

    async def rename(_: Service, request: Request, serve: Serve) -> Answer:
        named = request.headers.get("x-session-id")
        if named is not None:
            request = request.having(x_session_id=real.get(named, named))
        reply = await serve(request)
        body = reply.json
        if not isinstance(body, dict) or "sessionId" not in body:
            return reply
        return answer(reply.status, {**body, "sessionId": shown(body["sessionId"])})

    return all_of(middleware(rename, QUOTE), middleware(rename, SESSIONS))(recipe)


@session.defect("sessions-in-memory", "kit/5/session-survives-restart")
def sessions_in_memory(recipe: Recipe) -> Recipe:
    """After a restart, no session is known."""
    stores: list[SessionsInMemory] = []

    def made(inner: Any, service: Service) -> SessionsInMemory:
        store = SessionsInMemory(inner, service)
        if stores:
            store.begun_ms = service.clock.now_ms()
        stores.append(store)
        return store

    return collaborator(sessions=made)(recipe)
