"""Alice presents her header while the facilitator is out of reach: nothing is charged, and her
header stays valid. Mallory has seen it and submits it himself: the merchant has her money, and
Mallory has paid the gas. Alice sends the same header again and is served (decision
4.1/submitted-by-others). Mallory names that payment as his own and is not served. He cannot
redirect the money, and cannot submit the authorization through receiveWithAuthorization.
"""

from x402sim import Fault, LiveWorld, scenario


@scenario(
    title="Submitted by others: a third party submits the payer's authorization first",
    covers="3/pending-resolved, 5/exact-recipient, 5/nonce-once, 7/nonce-already-used",
    needs="funds, faults, control chain",
)
async def submitted_by_others(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    mallory = await world.payer("mallory")
    required = await alice.ask()
    header = alice.sign(required)
    await world.fault(Fault(victim="facilitator", does="refuse"))
    refused = await alice.pay(required, header)
    world.expect(refused, "Facilitator unreachable", "4.1/verify-signature")
    world.expect(refused.body["final"], False, "3/pending-resolved")

    diverted = await mallory.submit(alice.rewrite_header(header, to=mallory.address))
    world.expect(diverted.cause, "the signature does not prove consent", "5/exact-recipient")
    received = await mallory.submit(header, receive=True)
    world.expect(received.cause is None, False, "5/exact-recipient")
    submitted = await mallory.submit(header)
    world.expect(submitted.revert_reason, None, "1/payer-pays-no-gas")

    paid = await alice.pay(required, header)
    world.expect(paid, 200, "3/pending-resolved")
    world.expect(paid.body["txHash"], submitted.tx_hash, "4.1/receipt")
    world.expect(await alice.ask(payment_id=required.payment_id), 200, "1/repeat-served")

    his_own = await mallory.ask()
    world.expect(await mallory.pay(his_own, header), "Nonce already used", "7/nonce-already-used")
    world.expect(await mallory.ask(payment_id=his_own.payment_id), 402, "5/nonce-once")

    world.expect(len(await world.transfers(alice)), 1, "5/nonce-once")
    world.expect(await world.earned(), required.price_base, "5/nonce-once")
    world.expect(await mallory.balance(), 0, "5/exact-recipient")
