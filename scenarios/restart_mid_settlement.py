"""A settlement takes several requests. For each request, the service dies twice, during the
payments of two payers: as the request arrives, and when the answer is ready. The service starts
again on the same database. Each payer first asks for the quote, then sends the same header once
more: payers whose money has moved are served, and no money moves twice.
"""

from typing import Literal

from x402sim import Fault, LiveWorld, scenario

Moment = tuple[Literal["service", "facilitator"], str, Literal["crash before", "crash after"], int]
MOMENTS: tuple[Moment, ...] = (
    ("service", "/api/pay", "crash before", 0),
    ("facilitator", "/verify", "crash before", 0),
    ("facilitator", "/verify", "crash after", 0),
    ("facilitator", "/settle", "crash before", 0),
    ("facilitator", "/settle", "crash after", 1),
    ("service", "/api/pay", "crash after", 1),
)
"""The part called, the request, the moment of the crash, and the transfers so far."""


@scenario(
    title=(
        "Restart in the middle: the service crashes at each step of a settlement, and no payment "
        "is lost"
    ),
    covers="3/pending-resolved, 4.1/order, 5/nonce-once, 5/stored-records",
    needs="funds, clock, faults, observe chain",
)
async def restart_mid_settlement(world: LiveWorld) -> None:
    for victim, path, does, moved in MOMENTS:
        name = f"{does} {path}"
        payer = await world.payer(name, balance="1.00")
        required = await payer.ask()
        header = payer.sign(required)
        await world.fault(Fault(victim=victim, does=does, path=path))
        world.expect(await payer.pay(required, header), None, "4.1/order")

        await world.advance(20)
        transfers = len(await world.transfers(payer))
        world.expect(f"{name}: {transfers}", f"{name}: {moved}", "5/nonce-once")
        served = await payer.ask(payment_id=required.payment_id)
        world.expect(served, 200 if moved else 402, "3/pending-resolved")

        again = await payer.pay(required, header)
        world.expect(
            again.error, "Payment already settled" if moved else None, "3/pending-resolved"
        )
        world.expect(await payer.ask(payment_id=required.payment_id), 200, "5/stored-records")
        world.expect(len(await world.transfers(payer)), 1, "5/nonce-once")
    world.expect(await world.earned(), len(MOMENTS) * required.price_base, "5/nonce-once")
