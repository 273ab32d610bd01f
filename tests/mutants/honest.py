"""In which services must the suite find nothing? Each keeps the specification, in its own way.

Our own service, each of its decisions switched, a slow one, and services as others could
have written them: other spellings, other bodies, other habits where the specification is
silent. A failure or a doubt about one of these is a false alarm.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any

from tests.mutants.change import Change, answers, edit, settlement_rule, swap
from tests.mutants.required import ids, requirements
from x402sim.protocol.messages import SettlementRequest
from x402sim.service import app, payments
from x402sim.service.settings import Settings
from x402sim.spec.decisions import Decisions, alternatives
from x402sim.suite.engine import folder
from x402sim.suite.target import RecordEndpoint, SessionsEndpoint, Target, load
from x402sim.world.transport.latency import Latency, constant

OWN = "x402sim.toml"
"""The target file of our own service, which says where its records can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """A service that keeps every clause."""

    name: str
    own_target: bool = False
    decisions: Decisions | None = None
    latency: dict[str, Latency] | None = None
    seed: int = 1
    sweep_s: int | None = None
    changes: tuple[Change, ...] = ()

    @property
    def target(self) -> Target:
        """What the suite is told about it."""
        return own_target() if self.own_target else Target()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let every service that is built inside be this one."""
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change())
            yield


def own_target() -> Target:
    """Return the description of our own service."""
    file = folder() / "targets" / OWN
    if file.exists():
        return load(file)
    return Target(
        name="x402sim",
        record=RecordEndpoint(path="/api/payments/{paymentId}"),
        sessions=SessionsEndpoint(view="/api/sessions/{sessionId}"),
    )


def everywhere(change: Callable[[Any], Any]) -> tuple[Change, ...]:
    """Change every JSON body, whatever its status."""

    def of_object(it: Any) -> Any:
        return change(it) if isinstance(it, dict) else None

    return (answers(None, "/", of_object),)


def reversed_keys(it: Any) -> Any:
    """Return a body with all its keys in the opposite order."""
    if isinstance(it, dict):
        return {name: reversed_keys(it[name]) for name in reversed(it)}
    return [reversed_keys(each) for each in it] if isinstance(it, list) else it


def as_problem(it: Any) -> Any:
    """Return an error as a body of RFC 9457; anything else stays."""
    if "error" not in it or "paymentId" in it:
        return None
    return {"type": "about:blank", "title": it["error"], "detail": it.get("reason", "")}


def as_object(it: Any) -> Any:
    """Return an error as an object with a code and a message."""
    if "error" not in it or "paymentId" in it:
        return None
    return {"success": False, "error": {"code": "E42", "message": it["error"]}}


def switched() -> Iterator[Honest]:
    """Yield our own service with each of its decisions on the alternative, one at a time."""
    other = alternatives()
    for each in fields(Decisions):
        decisions = Decisions(**{each.name: getattr(other, each.name)})
        yield Honest(name=f"decision {each.name}", decisions=decisions)


class Strict(SettlementRequest, frozen=True, forbid_unknown_fields=True):
    """The body of a settlement, with nothing beside it."""


SLOW = constant(0.1)

HONEST: dict[str, Honest] = {
    each.name: each
    for each in (
        Honest(name="to the letter", sweep_s=Settings.session_sweep_s),
        Honest(name="with its own target", own_target=True),
        *switched(),
        Honest(name="every decision switched", decisions=alternatives()),
        Honest(name="200 ms a request", latency={"service": SLOW}),
        Honest(
            name="200 ms a request, and the world too",
            latency=dict.fromkeys(("service", "facilitator", "explorer", "rpc"), SLOW),
        ),
        *(Honest(name=f"seed {seed}", seed=seed) for seed in (2, 3, 4)),
        Honest(name="more fields", changes=everywhere(lambda it: {"apiVersion": 3, **it})),
        Honest(name="keys in another order", changes=everywhere(reversed_keys)),
        Honest(name="errors as problem details", changes=everywhere(as_problem)),
        Honest(name="errors as objects", changes=everywhere(as_object)),
        Honest(
            name="addresses in lower case",
            changes=(requirements(payTo=str.lower, asset=str.lower),),
        ),
        Honest(name="no description", changes=(requirements(description=None),)),
        Honest(
            name="ids as UUIDs",
            changes=(ids(lambda issuer, terms, n: f"pay_{_uuid(issuer._salts.randbytes(16))}"),),
        ),
        Honest(
            name="ids that begin with the time",
            changes=(
                ids(
                    lambda issuer, terms, n: (
                        f"pay_{terms.expires_s:x}{issuer._salts.randbytes(10).hex()}"
                    )
                ),
            ),
        ),
        Honest(
            name="ids that begin alike",
            changes=(
                ids(
                    lambda issuer, terms, n: (
                        f"pay_live_eyJhbGciOiJIUzI1NiJ9.{issuer._salts.randbytes(16).hex()}"
                    )
                ),
            ),
        ),
        Honest(
            name="session under another name",
            changes=(
                answers(
                    201, "/api/sessions", lambda it: {"data": {"session": {"id": it["sessionId"]}}}
                ),
            ),
        ),
        Honest(
            name="a bare list of agents",
            changes=(answers(200, "/api/agents", lambda it: it["agents"]),),
        ),
        Honest(
            name="any description may come back",
            changes=(settlement_rule("2.1/description", lambda case: True),),
        ),
        Honest(
            name="addresses compared to the letter",
            changes=(
                settlement_rule(
                    "2.1/pay-to", lambda case: case.requirements.pay_to == case.issued.pay_to
                ),
                settlement_rule(
                    "2.1/asset", lambda case: case.requirements.asset == case.issued.asset
                ),
            ),
        ),
        Honest(name="no other fields taken", changes=(swap(app, "SettlementRequest", Strict),)),
        Honest(
            name="hex headers only",
            changes=(
                edit(
                    payments.pay,
                    "    terms =",
                    '    if request.payment_header[:2] != "0x":\n'
                    "        raise SettlementRefused(Refusal.INVALID_SIGNATURE)\n"
                    "    terms =",
                ),
            ),
        ),
        Honest(
            name="whole prices",
            changes=(
                answers(
                    200,
                    "/api/perp/quote",
                    lambda it: it["quote"].update(
                        entryPrice=int(it["quote"]["entryPrice"]) + 1, fundingRate=0
                    ),
                ),
            ),
        ),
        Honest(name="in no hurry", sweep_s=300),
        Honest(
            name="a payment is good once",
            changes=(
                edit(
                    app.perp_quote,
                    "    return content",
                    "    paid = request.headers.get('x-payment-id')\n"
                    "    if granted.session_id is None:\n"
                    "        sql = \"UPDATE payments SET status = 'failed' WHERE payment_id = ?\"\n"
                    "        service.store._db.execute(sql, (paid,))\n"
                    "        service.entitlements.remove(paid)\n"
                    "    return content",
                ),
            ),
        ),
    )
}
"""Every honest service, by its name."""


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
