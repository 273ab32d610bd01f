"""Our decisions where the specification is silent, and switches for some of them.

`decisions.toml` has for each the question, our choice, the alternatives and the reason. A service
is built with one frozen `Decisions` object, so an experiment can run another choice:
`Decisions(payment_id_first=False)`.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from x402sim.text.arguments import explained
from x402sim.text.words import as_given


@dataclass(frozen=True, slots=True)
class Decision:
    """One question that the specification leaves open, and our choice.

    `id` is section/slug; `field` names the switch in `Decisions`, or is None. `alternative` is the
    other value of that switch.
    """

    id: str
    question: str
    choice: str
    alternatives: str
    reason: str
    field: str | None = None
    default: object = None
    alternative: object = None


def _switch(slug: str, default: Any, other: Any) -> Any:
    return field(default=default, metadata={"id": slug, "alternative": other})


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Choices where the specification is silent; the defaults are ours.

    The guide's page of decisions explains each. Raises `ValueError` for a value of a wrong type.
    """

    gate_before_body: bool = _switch("4.2/gate-before-body", True, False)
    sides: tuple[str, str] = _switch("4.2/sides", ("long", "short"), ("buy", "sell"))
    payment_id_first: bool = _switch("5/precedence", True, False)
    short_session_status: int = _switch("5/short-session", 402, 403)
    duration_unit_s: int = _switch("4.4/duration-unit", 1, 60)
    session_created_status: int = _switch("4.4/created", 201, 200)
    insufficient_balance_status: int = _switch("7/insufficient-balance-status", 402, 400)
    invalid_signature_status: int = _switch("7/invalid-signature-status", 400, 422)
    authorization_expired_status: int = _switch("7/authorization-expired-status", 400, 402)
    nonce_used_status: int = _switch("7/nonce-already-used-status", 409, 400)
    already_settled_status: int = _switch("7/payment-already-settled-status", 409, 400)
    requirements_mismatch_status: int = _switch("4.1/requirements-mismatch", 400, 422)
    facilitator_unreachable_status: int = _switch("7/facilitator-unreachable", 502, 503)
    settlement_pending_status: int = _switch("4.1/settlement-pending", 409, 425)
    authorization_once: bool = _switch("5/authorization-once", True, False)
    agents_free: bool = _switch("4.3/agents-free", True, False)

    def __post_init__(self) -> None:
        given: object = self.sides
        if not (isinstance(given, tuple) and [type(side) for side in given] == [str, str]):
            raise ValueError(
                f'sides: expected two texts, ("buy", "sell") or so, got {as_given(given)}'
            )


@cache
def decisions() -> tuple[Decision, ...]:
    """Return every decision, the switchable ones first."""
    import tomllib  # late: few commands need the texts
    from importlib.resources import files

    text = files(__package__).joinpath("decisions.toml").read_text("utf-8")
    found = tomllib.loads(text)
    for each in fields(Decisions):
        about = found[each.metadata["id"]]
        about |= {"field": each.name, "default": each.default}
        about["alternative"] = each.metadata["alternative"]
    return tuple(Decision(slug, **about) for slug, about in found.items())


def alternatives() -> Decisions:
    """Return `Decisions` with every switch set to its alternative."""
    return Decisions(
        **{switch.name: switch.metadata["alternative"] for switch in fields(Decisions)}
    )
