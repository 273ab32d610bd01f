"""Section 4.1, the last steps: the stored record, the cache, and the receipt."""

import asyncio

from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.spec.ground import derived, explicit
from x402sim.suite.report.results import DemandKey
from x402sim.suite.service import expect
from x402sim.suite.service.case import case, paid_case, refusal_case, restart_case
from x402sim.suite.service.control_api import HOLD_S, TX_HASH
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import CheckFailed, Inconclusive, as_json

CLOCKS_AGREE_MS = 600_000
"""How far the target's clock may be from ours; seconds instead of milliseconds are further."""


@paid_case(
    "4.1/store-settled",
    title='After a settlement, the stored payment has status "settled".',
    needs="funds, record",
)
async def the_record_is_settled(probe: Probe) -> None:
    paid = await probe.buy()
    record = await probe.record_of(paid)
    if record.get("block_number") is None:  # the indexer updates the status, to open values
        expect.equal("status", record.get("status"), "settled")


@restart_case(
    "4.1/store-settled",
    title=(
        "A settled payment is stored: after a restart, with an empty cache, its id grants access."
    ),
    ground=explicit("4.1: Store the payment record", "5: Otherwise look", "5: When one exists"),
)
async def a_payment_survives_a_restart(probe: Probe) -> None:
    paid = await probe.buy()
    await probe.restart()
    expect.served(await probe.ask(payment_id=paid.challenge.payment_id))


@case(
    "4.1/cache",
    title="A settlement adds one entitlement to the cache of our own service.",
    needs="funds, world, clock",
    decisive=False,
)
async def the_entitlement_is_cached(probe: Probe) -> None:
    before = await probe.world.cached_entitlements()
    await probe.buy()
    expect.equal("entitlements added", await probe.world.cached_entitlements() - before, 1)


@paid_case(
    "4.1/receipt",
    title="A receipt is a 200 with success true, the payment's id, a hash, and epoch milliseconds.",
)
async def the_receipt_has_its_fields(probe: Probe) -> None:
    challenge, _, header = await probe.signed()
    receipt, places = await probe.settle(challenge, header), probe.target.receipt
    if not receipt.is_receipt:
        raise Inconclusive(f"a valid payment was not settled: {receipt.summary}")
    expect.equal("the status of a receipt", receipt.status, 200)
    probe.by_target("receipt.success", "receipt.payment_id", "receipt.tx_hash")
    if places.success:
        expect.holds("success true", receipt.at(places.success) is True, receipt.summary)
    if places.payment_id:
        is_same = receipt.at(places.payment_id) == challenge.payment_id
        expect.holds("paymentId, the id that was paid", is_same, receipt.summary)
    tx_hash = receipt.at(places.tx_hash)
    is_hash = isinstance(tx_hash, str) and TX_HASH.fullmatch(tx_hash) is not None
    expect.holds("txHash, 0x and 64 hex digits", is_hash, as_json(tx_hash))
    if places.timestamp:
        probe.by_target("receipt.timestamp")
        value, now_ms = receipt.at(places.timestamp), probe.clock.now_ms()
        whole = value.is_integer() if isinstance(value, float) else type(value) is int
        expect.holds("timestamp, an integer", whole, as_json(value))
        near = abs(value - now_ms) < CLOCKS_AGREE_MS
        expect.holds(f"epoch milliseconds, about {now_ms}", near, as_json(value))


@refusal_case(
    "4.1/receipt",
    title=("Concurrent payments, two by one payer, each get a receipt and access of their own."),
    ground=derived(
        "4.1: paymentId | string",
        "4.1: Return the transaction hash",
        "4.1: Cache the entitlement",
        so="Receipt and entitlement are of their own payment, also beside other payments.",
    ),
    pays=3,
)
async def everybody_gets_his_own_receipt(probe: Probe) -> None:
    places = probe.target.receipt
    asked = [await probe.challenge() for _ in range(3)]
    payers = [await probe.wallets.payer() for _ in range(2)]
    payers.append(payers[0])
    headers = [probe.wallets.sign(each, payer) for each, payer in zip(asked, payers, strict=True)]
    for number, payer in enumerate(payers):  # the first request is answered last
        await probe.world.hold(payer, HOLD_S / (number + 1))
    payments = list(zip(asked, headers, strict=True))
    answers = await asyncio.gather(*(probe.settle(each, header) for each, header in payments))
    for number, (challenge, header) in enumerate(payments):
        if not answers[number].is_receipt:  # too much at once, maybe
            answers[number] = await probe.settle(challenge, header)
        probe.wallets.expect_settled(answers[number])
        if places.payment_id:
            is_same = answers[number].at(places.payment_id) == challenge.payment_id
            expect.holds("paymentId, the id that was paid", is_same, answers[number].summary)
        expect.served(await probe.opened(challenge))
    if probe.world.exists:  # the world's facilitator sends one transaction for each payment
        hashes = {repr(answer.at(places.tx_hash)) for answer in answers}
        expect.equal("different transactions for three payments", len(hashes), len(payments))


@paid_case(
    "4.1/receipt",
    title="The receipt's transaction is on the chain: a transfer of the amount to the payee.",
    ground=derived(
        "4.1: Return the transaction hash",
        "4.1: The facilitator executes",
        so="The returned transaction has executed the transfer.",
    ),
    needs="funds, observe chain",
)
async def the_transaction_of_the_receipt_is_the_payment(probe: Probe) -> None:
    paid = await probe.buy()
    mined = await probe.chain.mined(paid)
    if mined is None and not probe.world.exists:
        raise Inconclusive("the node does not have the transaction of the receipt (yet)")
    if mined is None:
        raise CheckFailed(
            "the receipt's transaction",
            "one on the chain",
            paid.receipt.summary,
            demand=DemandKey.TRANSFER,
        )
    expect.equal("the transaction's status", int(mined["status"], 16), 1)
    wanted = paid.challenge.requirements
    payee = abi.word(parse_address(str(wanted["payTo"])))
    transfer = [to_hex(abi.TRANSFER_EVENT), to_hex(abi.word(paid.payer.address_bytes))]
    moved = [
        int(log["data"], 16)
        for log in mined["logs"]
        if log["address"].lower() == str(wanted["asset"]).lower()
        and log["topics"] == [*transfer, to_hex(payee)]
    ]
    expect.equal("transfers from payer to payee", moved, [paid.challenge.amount_base])
