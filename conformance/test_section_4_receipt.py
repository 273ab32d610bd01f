"""Section 4.1, the last steps: what is stored, what is cached, and what the payer is told."""

import asyncio

from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.suite.answers import Answer, Challenge
from x402sim.suite.probe import TX_HASH, Probe
from x402sim.suite.verdict import Failed, Inconclusive, Skipped, check

CLOCKS_AGREE_MS = 600_000
"""How far the clock of a target may be from ours; seconds instead of milliseconds are further."""


@check("4.1/store-settled", needs="money, record", pays=1)
async def the_record_is_settled(probe: Probe) -> None:
    """After a settlement the stored payment has status "settled"."""
    paid = await probe.buy()
    path = probe.target.record.path.replace("{paymentId}", paid.challenge.payment_id)
    record = await probe.send("GET", path)
    if record.status != 200:
        raise Inconclusive(f"the payment record cannot be read: {probe.seen(record)}")
    probe.expect("status", record.at("/status"), "settled")


@check("4.1/store-settled", needs="money, world, clock", pays=1)
async def a_payment_survives_a_crash(probe: Probe) -> None:
    """What was settled is stored: after a crash, with an empty cache, its id grants access."""
    paid = await probe.buy()
    await probe.control("POST", "crash")
    probe.served(await probe.ask(payment_id=paid.challenge.payment_id))


@check("4.1/cache", needs="money, world, clock", pays=1)
async def the_entitlement_is_cached(probe: Probe) -> None:
    """A settlement adds one entitlement to the cache."""
    before = await _cached(probe)
    await probe.buy()
    probe.expect("entitlements added", await _cached(probe) - before, 1)


async def _cached(probe: Probe) -> int:
    """Return how many entitlements the world's own service holds in memory."""
    state = await probe.control("GET", "state")
    if "cachedEntitlements" not in state:
        raise Skipped("this world does not show the target's cache")
    return int(state["cachedEntitlements"])


@check("4.1/receipt", needs="money", pays=1)
async def the_receipt_has_its_fields(probe: Probe) -> None:
    """A receipt is a 200 with success true, the payment's id and a hash of 32 bytes."""
    challenge, receipt = await _receipt(probe)
    places = probe.target.receipt
    if places.success:
        probe.require("success true", receipt.at(places.success) is True, probe.seen(receipt))
    if places.payment_id:
        is_same = receipt.at(places.payment_id) == challenge.payment_id
        probe.require("paymentId, the id that was paid", is_same, probe.seen(receipt))
    tx_hash = receipt.at(places.tx_hash)
    is_hash = isinstance(tx_hash, str) and TX_HASH.fullmatch(tx_hash) is not None
    probe.require("txHash, 0x and 64 hex digits", is_hash, repr(tx_hash))


@check("4.1/receipt", needs="money", pays=1)
async def the_timestamp_is_in_milliseconds(probe: Probe) -> None:
    """The timestamp of a receipt is an integer, the time in epoch milliseconds."""
    place = probe.target.receipt.timestamp
    if not place:
        raise Skipped("the target file says that receipts have no timestamp")
    _, receipt = await _receipt(probe)
    told, now_ms = receipt.at(place), probe.setting.clock.now_ms()
    whole = told.is_integer() if isinstance(told, float) else type(told) is int
    probe.require("timestamp, an integer", whole, repr(told))
    near = abs(told - now_ms) < CLOCKS_AGREE_MS
    probe.require(f"epoch milliseconds, about {now_ms}", near, repr(told))


@check("4.1/receipt", control="payment", needs="money", pays=3)
async def everybody_gets_his_own_receipt(probe: Probe) -> None:
    """Payments that are made at the same time have each their own receipt."""
    places = probe.target.receipt
    payments = await asyncio.gather(*(_receipt(probe) for _ in range(3)))
    for challenge, receipt in payments:
        if places.payment_id:
            is_same = receipt.at(places.payment_id) == challenge.payment_id
            probe.require("paymentId, the id that was paid", is_same, probe.seen(receipt))
    hashes = {receipt.at(places.tx_hash) for _, receipt in payments}
    probe.expect("different transactions for three payments", len(hashes), len(payments))


async def _receipt(probe: Probe) -> tuple[Challenge, Answer]:
    """Pay, and return what the payer is told; fails if it is a success of another status."""
    challenge = await probe.challenge()
    answer = await probe.settle(challenge, probe.sign(challenge, await probe.payer()))
    if not 200 <= answer.status < 300:
        raise Inconclusive(f"a valid payment was not settled: {probe.seen(answer)}")
    probe.expect("the status of a receipt", answer.status, 200)
    return challenge, answer


@check("4.1/receipt", needs="money, chain", pays=1)
async def the_transaction_of_the_receipt_is_the_payment(probe: Probe) -> None:
    """The receipt's transaction is on the chain, and transfers just the amount to the payee."""
    paid = await probe.buy()
    mined = await probe.mined(paid)
    if mined is None and probe.setting.control is None:
        raise Inconclusive("the node does not know the transaction of the receipt, or not yet")
    if mined is None:
        raise Failed("the receipt's transaction", "one on the chain", probe.seen(paid.receipt))
    probe.expect("the transaction's status", int(mined["status"], 16), 1)
    wanted = paid.challenge.requirements
    payee = abi.word(parse_address(str(wanted["payTo"])))
    transfer = [to_hex(abi.TRANSFER_EVENT), to_hex(abi.word(paid.payer.address_bytes))]
    moved = [
        int(log["data"], 16)
        for log in mined["logs"]
        if log["address"].lower() == str(wanted["asset"]).lower()
        and log["topics"] == [*transfer, to_hex(payee)]
    ]
    probe.expect("transfers from payer to payee", moved, [paid.challenge.amount_base])
