"""Sections 2.4, 2.6 and 2.8: the stored payment, the session, the networks."""

import asyncio
from dataclasses import replace
from fractions import Fraction
from typing import Any

from x402sim.spec.ground import derived, ours
from x402sim.suite.service import expect
from x402sim.suite.service.answers import (
    CURE_OF_IDS,
    TargetAnswer,
    filled,
    last_part,
    shown,
    snake,
    walk,
)
from x402sim.suite.service.background import buy_late, turn_s
from x402sim.suite.service.case import case, paid_case, refusal_case, session_case
from x402sim.suite.service.control_api import HOLD_S, another_chain
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive

SAMPLE, NEIGHBOURS = 4, 1000
RECORDED = ("payment_id", "tx_hash", "from_address", "to_address", "amount", "resource_url")
"""The fields of a record that never change, unlike its block and status."""
CHAINS = {"testnet": 338, "mainnet": 25}


@paid_case(
    "2.4/record",
    title="The stored payment has the fields of 2.4, with the values of this payment.",
    needs="funds, record",
    decisive="the stored fields",
)
async def a_payment_is_stored_as_it_was_made(probe: Probe) -> None:
    paid = await probe.buy()
    record, wanted = await probe.record_of(paid), paid.challenge.requirements
    tx_hash = str(paid.receipt.at(probe.target.receipt.tx_hash))
    is_same = record.get("payment_id") == paid.challenge.payment_id
    expect.holds("payment_id, the id that was paid", is_same, sorted(record))
    values = {"amount": wanted["maxAmountRequired"], "resource_url": wanted["resource"]}
    if record.get("block_number") is None:  # the indexer updates the status, to open values
        values["status"] = "settled"
    for name, value in values.items():
        expect.equal(name, record.get(name), value)
    for name, text in (
        ("tx_hash", tx_hash),
        ("from_address", paid.payer.address),
        ("to_address", str(wanted["payTo"])),
    ):
        expect.equal(name, str(record.get(name)).lower(), text.lower())
    expect.holds("a timestamp", bool(record.get("timestamp")), record.get("timestamp"))


@case(
    "2.4/record",
    title="The stored payment of a deposit has its own amount, resource and payer.",
    needs="funds, record, sessions, world",
    decisive="the stored fields",
)
async def a_deposit_is_stored_as_it_was_made(probe: Probe) -> None:
    _, deposit = await probe.deposit(3)
    paid = await probe.pay(deposit)
    record, wanted = await probe.record_of(paid), deposit.requirements
    expect.equal("amount", record.get("amount"), wanted["maxAmountRequired"])
    expect.equal("resource_url", record.get("resource_url"), wanted["resource"])
    from_address = str(record.get("from_address")).lower()
    expect.equal("from_address", from_address, paid.payer.address.lower())


@case(
    "2.4/record",
    title="The records of concurrent payments each have their own payer and transaction.",
    ground=derived(
        "2.4: tx_hash",
        "2.4: from_address",
        so="A record is of its own payment, also if others are settled at the same time.",
    ),
    needs="funds, record, world",
)
async def payments_at_the_same_time_have_their_own_records(probe: Probe) -> None:
    asked = [await probe.challenge(fresh=True) for _ in range(3)]
    payers = [await probe.wallets.payer() for _ in asked]
    for number, payer in enumerate(payers):  # the first request is answered last
        await probe.world.hold(payer, HOLD_S / (number + 1))
    paying = (probe.pay(each, payer) for each, payer in zip(asked, payers, strict=True))
    for paid in await asyncio.gather(*paying):
        record = await probe.record_of(paid)
        from_address, tx_hash = (
            str(record.get(name)).lower() for name in ("from_address", "tx_hash")
        )
        expect.equal("from_address", from_address, paid.payer.address.lower())
        in_receipt = str(paid.receipt.at(probe.target.receipt.tx_hash)).lower()
        expect.equal("tx_hash", tx_hash, in_receipt)


@refusal_case(
    "2.4/record",
    title=(
        "After a second payment for a paid id was refused, the stored payment is the first one."
    ),
    ground=derived(
        "2.4: tx_hash",
        "2.4: from_address",
        "7: Payment already settled",
        so="The record is of the payment that was settled, and the second was not.",
    ),
    needs="funds, record",
    pays=2,
)
async def what_is_refused_does_not_change_the_record(probe: Probe) -> None:
    paid = await probe.buy()
    before, other = await probe.record_of(paid), await probe.wallets.payer()
    second = probe.wallets.sign(paid.challenge, other)
    expect.refused(await probe.settle(paid.challenge, second))
    after = await probe.record_of(paid)
    for name in RECORDED:
        expect.equal(name, after.get(name), before.get(name))


@case(
    "2.4/block-null",
    title="block_number exists and is null at creation, until the indexer sets it.",
    needs="funds, record",
    pays=2,
    decisive=False,
)
async def a_new_record_has_no_block(probe: Probe) -> None:
    records = [await probe.record_of(await probe.buy()) for _ in range(2)]
    for record in records:
        expect.holds("a field block_number", "block_number" in record, sorted(record))
    # The indexer may run between a payment and this request for the record, but not twice in a row.
    blocks = [record["block_number"] for record in records]
    expect.holds("null at creation", None in blocks, blocks)


@paid_case(
    "2.4/block-null",
    title=("After the indexer's interval, block_number is the block of the payment's transaction."),
    needs="funds, record, observe chain",
    waits=turn_s,
    late=True,
)
async def the_indexer_fills_in_the_block(probe: Probe) -> None:
    paid = await buy_late(probe)
    mined = await probe.chain.receipt(paid)
    record = await probe.eventually(
        lambda: probe.record_of(paid),
        turn_s(probe.setting),
        lambda record: record.get("block_number") is not None,
    )
    expect.equal("block_number", record.get("block_number"), int(mined["blockNumber"], 16))


@case(
    "2.6/id-prefix",
    title="The session id of a settled deposit begins with session_.",
    needs="funds, sessions",
    deposits="0.01",
    decisive=False,
)
async def a_session_id_has_its_prefix(probe: Probe) -> None:
    max_spend, challenge = await probe.deposit(1)
    paid = await probe.pay(challenge)
    answer = await probe.ask_session(max_spend, payment_id=challenge.payment_id)
    given = [*_session_ids(paid.receipt), *_session_ids(answer)]
    odd = [f"{name[:8]}…" for name in given if not name.startswith("session_")]
    expect.equal("session ids without the prefix", odd, [])
    if not any(each.session_id for each in (paid.receipt, answer)) and not given:
        raise Inconclusive(f"no session id was found: {answer.summary}{CURE_OF_IDS}")


@case(
    "2.6/session-ids",
    title="Of four sessions that are opened one after the other, the ids are no neighbours.",
    ground=ours(
        "2.6: A session is identified",
        because="Whoever guesses the id of a session can spend its budget.",
    ),
    needs="funds, sessions, world",
)
async def session_ids_do_not_count_up(probe: Probe) -> None:
    max_spend = await probe.budget_for(1)
    ids = [(await probe.open_session(max_spend)).session_id for _ in range(SAMPLE)]
    expect.equal(f"different ids among {SAMPLE}", len(set(ids)), SAMPLE)
    numbers = _numbers(ids)
    spread = max(numbers) - min(numbers) if numbers else None
    are_near = spread is not None and spread <= NEIGHBOURS
    expect.holds(
        "session ids that are no neighbours", not are_near, f"numbers {spread} apart at most"
    )


def _numbers(ids: list[str]) -> list[int]:
    """Return the different parts of ids as decimal or hex numbers; empty for other texts."""
    begin = _common(ids)
    end = _common([each[begin:][::-1] for each in ids])
    parts = [each[begin : len(each) - end] for each in ids]
    for base in (10, 16):
        try:
            return [int(part or "0", base) for part in parts]
        except ValueError:
            continue
    return []


def _common(texts: list[str]) -> int:
    letters = zip(*texts, strict=False)
    return next((n for n, each in enumerate(letters) if len(set(each)) > 1), min(map(len, texts)))


def _session_ids(answer: TargetAnswer) -> list[str]:
    """Return the values of all fields named sessionId or session_id, and of X-Session-Id."""
    ids = [answer.headers["x-session-id"]] if "x-session-id" in answer.headers else []
    named = (value for place, value in walk(answer.body) if snake(last_part(place)) == "session_id")
    return ids + [value for value in named if isinstance(value, str)]


@session_case(
    "2.6/remaining",
    title="The service serves exactly as many requests as the deposit pays for.",
    ground=derived(
        "2.6: Remaining budget",
        "5: When deposited - released",
        "5: Access to protected endpoints",
        so="With nothing remaining, a session is no proof of payment, so it grants no access.",
    ),
    deposits="0.03",
    decisive=False,
)
async def a_budget_ends_when_it_is_spent(probe: Probe) -> None:
    session = await probe.open_session(await probe.budget_for(3))
    price_base = (await probe.challenge()).amount_base
    for _ in range(session.paid.challenge.amount_base // price_base):
        expect.served(await probe.ask(session_id=session.session_id))
    expect.withheld(await probe.ask(session_id=session.session_id))


@case(
    "2.6/remaining",
    title="A readable session shows remaining = deposited - released.",
    needs="funds, sessions, session view",
    deposits="0.03",
)
async def remaining_is_deposited_minus_released(probe: Probe) -> None:
    session = await probe.open_session(await probe.budget_for(3))
    expect.served(await probe.ask(session_id=session.session_id))
    path = filled(probe.target.sessions.view, "sessionId", session.session_id)
    answer = await probe.send("GET", path)
    state = shown(answer.body, "deposited", "released") or {}
    deposited, released, remaining = (
        _number(state.get(name)) for name in ("deposited", "released", "remaining")
    )
    if deposited is None or released is None:
        raise Inconclusive(f"deposited and released are not shown: {answer.summary}")
    price_base = (await probe.challenge()).amount_base
    share = Fraction(price_base, session.paid.challenge.amount_base)
    expect.equal("released, after one request", released, deposited * share)
    if remaining is not None:
        expect.equal("remaining", remaining, deposited - released)


def _number(value: Any) -> Fraction | None:
    """Return a field's value as a number, in any unit and type; None if it is not a number."""
    try:
        return Fraction(str(value))
    except ValueError:
        return None


@case(
    "2.8/networks",
    title="The chain id is 338 on a testnet, 25 on a mainnet, else that of the network.",
    needs="observe chain",
)
async def the_chain_has_the_networks_id(probe: Probe) -> None:
    network = str((await probe.challenge()).requirements.get("network"))
    known = probe.setting.options.networks.get(network)
    kind = next((kind for kind in CHAINS if network.endswith(kind)), None)
    if known is None and kind is None:
        raise Inconclusive(f"the name {network!r} names neither a testnet nor a mainnet")
    wanted = known.chain_id if known is not None else CHAINS[str(kind)]
    chain_id = int(await probe.chain.call("eth_chainId"), 16)
    expect.equal_form(f"the chain id of {network}", chain_id, wanted)


@refusal_case(
    "2.8/networks",
    title="An authorization signed for another chain id is refused.",
    ground=derived(
        "2.8: testnet",
        "2.8: mainnet",
        "5: The signature proves",
        so="A signature for another chain id does not authorize a transfer on this network.",
    ),
)
async def an_authorization_for_another_chain_is_refused(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    network = probe.wallets.network(challenge)
    other = replace(network, chain_id=another_chain(network))
    await probe.expect_refused_if(payer, of=challenge, network=other)
