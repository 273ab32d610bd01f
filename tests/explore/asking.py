"""Asks the services about everything once more, at the end.

The world is at rest: no faults, no third parties, every header expired, every session ended.
"""

from dataclasses import dataclass, replace

from tests.explore.book import Key, Presented
from tests.explore.steps import Scene
from x402sim.protocol.routes import MARKET
from x402sim.world.payer import Answer, Payer

LATE_S = 1_300.0
"""Time for a session that opened during the audit: 600 s at most, and its refund."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What a service answers at the end for one of its payment ids."""

    key: Key
    access: bool
    """Whether X-Payment-Id is accepted, before the header was presented again."""
    access_after: bool
    """Whether it is accepted after that."""
    elsewhere: bool
    """Whether the payment id, or the header, is accepted for another resource."""
    record: dict[str, object]
    """Its status before the header was presented again, and its tx_hash after."""
    session: dict[str, object]


async def ask_everything(scene: Scene) -> dict[Key, Granted]:
    """Ask each service about each payment id: access, the header again, the record.

    A session that opens only now gets the time to end, and to be refunded.
    """
    found: dict[Key, Granted] = {}
    for each in scene.book.presented:
        if each.key not in found:
            found[each.key] = await _ask_about(scene, each)
    late = [each for each in found.values() if each.session and not each.access]
    if late:
        await scene.world.clock.sleep(LATE_S)
    for granted in late:
        payer = scene.at(scene.book.at(granted.key)[0].signed.payer, granted.key[0])
        view = await payer.session(str(granted.session["sessionId"]))
        found[granted.key] = replace(granted, session=view)
    return found


async def _ask_about(scene: Scene, first: Presented) -> Granted:
    service, payment_id = first.key
    payer = scene.at(first.signed.payer, service)
    before = await scene.show(payer, first.order)
    status = (await payer.payment(payment_id)).get("status")
    elsewhere = await _present_again(scene, first.key, payer, is_paid=_is_granted(before))
    after = before if _is_granted(before) else await scene.show(payer, first.order)
    record = await payer.payment(payment_id)
    session: dict[str, object] = after.body if "sessionId" in after.body else {}
    if session:
        session = await payer.session(str(session["sessionId"]))
    other = await payer.send("GET", MARKET, headers={"X-Payment-Id": payment_id})
    return Granted(
        first.key,
        _is_granted(before),
        _is_granted(after),
        elsewhere or _is_granted(other),
        {"tx_hash": record.get("tx_hash"), "status": status},
        session,
    )


async def _present_again(scene: Scene, key: Key, payer: Payer, *, is_paid: bool) -> bool:
    """Present every header for a payment id again; one in one step also if that is served.

    Tell whether one was accepted for another resource.
    """
    elsewhere = False
    for each in scene.book.at(key):
        if not (is_paid and each.in_two_steps):
            each.late.append(await each.order.pay(payer, each.signed))
            is_paid = is_paid or _is_granted(each.late[-1])
        if not each.in_two_steps:
            proof = each.order.proof(each.signed, scene.world.network)
            other = await payer.send("GET", MARKET, headers=proof)
            elsewhere = elsewhere or _is_granted(other)
    return elsewhere


def _is_granted(answer: Answer) -> bool:
    return answer.status in (200, 201)
