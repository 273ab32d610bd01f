"""Alice's client uses PaymentAuth. First the answer to a payment is lost, then the facilitator
fails, then the answer with the quote is lost. Each time the program repeats the request. The client
sends the signed header again instead of signing a new header: a quote costs one authorization and
one transfer.
"""

import httpx

from x402sim import Fault, LiveWorld, PaymentAuth, PaymentFailed, scenario

QUOTE = "/api/perp/quote"
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
TROUBLES = (
    Fault(victim="service", does="lose answer", path="/api/pay"),
    Fault(victim="service", does="lose request", path="/api/pay"),
    Fault(victim="facilitator", does="answer", status=502, path="/settle"),
    Fault(victim="service", does="lose answer", path="/quote", skip=1),
)


@scenario(
    title="Careful client: PaymentAuth loses answers at every step and is charged once",
    covers="1/sign-settle-repeat, 3/pending-resolved, 5/nonce-once",
    needs="funds, faults, observe chain",
)
async def careful_client(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    auth = PaymentAuth(alice.wallet, clock=world.clock, reuse=False, network=world.network)
    for bought, trouble in enumerate(TROUBLES, 1):
        await world.fault(trouble)
        try:
            first = (await alice.http.post(QUOTE, json=ORDER, auth=auth)).status_code
        except (httpx.TransportError, PaymentFailed):
            first = None
        world.expect(first, None, "1/sign-settle-repeat")
        second = await alice.http.post(QUOTE, json=ORDER, auth=auth)
        world.expect(second.status_code, 200, "1/sign-settle-repeat")

        world.expect(len(await world.transfers(alice)), bought, "5/nonce-once")
        world.expect(auth.signed_base, bought * 10_000, "3/pending-resolved")
