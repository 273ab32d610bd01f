"""Section 2.1: requirements that are sent back changed are refused, and move no money.

Each case changes one field and signs an authorization that matches the change, so that only
a comparison with the issued requirements can detect it.
"""

from dataclasses import replace
from typing import Any

import msgspec

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.networks import NETWORKS
from x402sim.suite.answers import Challenge, read_402
from x402sim.suite.check import check
from x402sim.suite.expect import expect_not_served, expect_refused
from x402sim.suite.probe import Probe
from x402sim.suite.setting import Setting
from x402sim.suite.verdict import Inconclusive

ELSEWHERE = "0x" + "12" * 20
INVENTED_TX = "0x" + "ab" * 32
SOON_S, NEARLY_S, LATE_S = 15, 5, 15
"""How long before the end of the requirements they are sent, at least, and how long after it."""
USUAL_S = 300


@check("2.1/scheme", baseline="payment", needs="funds", pays=1)
async def another_scheme_is_refused(probe: Probe) -> None:
    """Requirements with another scheme are refused, even if the facilitator accepts them."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    header = probe.money.sign(challenge, payer)
    await _facilitator_takes(probe, challenge, payer, "scheme", "upto")
    await _refused(probe, challenge, payer, header, scheme="upto")


@check("2.1/network", baseline="payment", needs="funds", pays=1)
async def another_network_is_refused(probe: Probe) -> None:
    """Requirements with another network are refused, even if the facilitator accepts them."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    network = probe.money.network(challenge)
    other = next(name for name in NETWORKS if name != network.name)
    header = probe.money.sign(challenge, payer, network=replace(network, name=other))
    await _facilitator_takes(probe, challenge, payer, "network", other)
    await _refused(probe, challenge, payer, header, network=other)


@check("2.1/asset", baseline="payment", needs="funds", pays=1)
async def another_token_is_refused(probe: Probe) -> None:
    """Requirements with another token are refused, even if the facilitator accepts them."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    token = replace(probe.money.network(challenge), asset=parse_address(ELSEWHERE))
    header = probe.money.sign(challenge, payer, network=token)
    await _facilitator_takes(probe, challenge, payer, "asset", ELSEWHERE)
    await _refused(probe, challenge, payer, header, asset=ELSEWHERE)


@check("2.1/pay-to", baseline="payment", needs="funds", pays=3)
async def another_payee_is_refused(probe: Probe) -> None:
    """Requirements and authorization with another payee are refused; a similar address, too."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    payee = str(challenge.requirements["payTo"])
    alike = [payee[:22] + ELSEWHERE[22:], ELSEWHERE[:22] + payee[22:].lower()]
    for other in (payer.address, *(each.lower() for each in alike)):
        header = probe.money.sign(challenge, payer, to=other)
        await _refused(probe, challenge, payer, header, payTo=other)


@check("2.1/amount", baseline="payment", needs="funds", pays=1)
async def a_smaller_amount_is_refused(probe: Probe) -> None:
    """Requirements and authorization for one base unit are refused."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    header = probe.money.sign(challenge, payer, value=1)
    await _refused(probe, challenge, payer, header, maxAmountRequired="1")


@check("2.1/amount", baseline="payment", needs="funds", pays=2)
async def a_larger_amount_is_refused(probe: Probe) -> None:
    """Requirements and authorization for one base unit more are refused."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    more = challenge.amount_base + 1
    header = probe.money.sign(challenge, payer, value=more)
    await _refused(probe, challenge, payer, header, maxAmountRequired=str(more))


@check("2.1/amount", baseline="payment", needs="funds", pays=1)
async def another_spelling_of_the_amount_is_refused(probe: Probe) -> None:
    """The amount with a leading zero, or as a number, is refused."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    header, amount_base = probe.money.sign(challenge, payer), challenge.amount_base
    for respelled in (f"0{amount_base}", amount_base):
        await _refused(probe, challenge, payer, header, maxAmountRequired=respelled)


@check("2.1/amount", baseline="session", needs="funds, sessions", pays=1)
async def a_smaller_deposit_is_refused(probe: Probe) -> None:
    """Requirements and authorization for a session deposit of one base unit are refused."""
    payer, max_spend = await probe.money.payer(), await probe.budget_for(5)
    deposit = read_402(await probe.ask_session(max_spend))
    header = probe.money.sign(deposit, payer, value=1)
    await _refused(probe, deposit, payer, header, maxAmountRequired="1")
    answer = await probe.ask_session(max_spend, payment_id=deposit.payment_id)
    session_id = answer.session_id
    if session_id is not None:
        expect_not_served(await probe.ask(session_id=session_id))


@check("2.1/timeout", baseline="payment", needs="funds", pays=1)
async def another_timeout_is_refused(probe: Probe) -> None:
    """Requirements changed to be valid for a day are refused."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    header = probe.money.sign(challenge, payer)
    await _refused(probe, challenge, payer, header, maxTimeoutSeconds=86_400)


@check("2.1/resource", baseline="payment", needs="funds", pays=1)
async def another_resource_is_refused(probe: Probe) -> None:
    """Requirements for another path, or for another spelling of the path, are refused."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    header, path = probe.money.sign(challenge, payer), probe.target.protected.path
    others = {probe.target.sessions.path, "/", path[:-1], path + "/", path.upper()} - {path}
    for other in sorted(others):
        await _refused(probe, challenge, payer, header, resource=other)


@check("2.1/resource", baseline="payment", needs="funds, sessions", pays=2)
async def the_requirements_of_another_id_are_refused(probe: Probe) -> None:
    """A deposit's id with the requirements of a quote, or vice versa, is refused."""
    quote, payer = await probe.challenge(), await probe.money.payer()
    deposit = read_402(await probe.ask_session(await probe.budget_for(1)))
    for wanted, other in ((quote, deposit), (deposit, quote)):
        header = probe.money.sign(wanted, payer)
        expect_refused(await probe.settle(wanted, header, payment_id=other.payment_id))
    for challenge in (quote, deposit):
        expect_not_served(await probe.ask(payment_id=challenge.payment_id))
    await probe.world.expect_payments(payer)


@check("2.1/changed-description", document="silent", needs="funds", pays=1)
async def another_description(probe: Probe) -> None:
    """Whether requirements with a changed description are settled."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    header = probe.money.sign(challenge, payer)
    answer = await probe.settle(challenge, header, requirements={"description": "A present"})
    probe.observe("settled" if answer.status == 200 else f"refused: {answer.summary}")


def _late_s(setting: Setting) -> float:
    """Return how long it takes until requirements have ended."""
    return (setting.target.payment_required.max_timeout_s or USUAL_S) + LATE_S


@check("2.1/validity", baseline="payment", needs="funds", pays=1, waits=_late_s)
async def requirements_are_valid_to_their_end(probe: Probe) -> None:
    """Shortly before maxTimeoutSeconds have passed, the requirements can still be paid."""
    begun_s, payer = probe.clock.now(), await probe.money.payer()
    challenge = await probe.challenge()
    ends_s = begun_s + _timeout_s(challenge)
    await probe.wait(ends_s - SOON_S - probe.clock.now())
    if probe.clock.now() > ends_s - NEARLY_S:
        raise Inconclusive("another check took so long that the requirements have nearly ended")
    probe.money.expect_settled(await probe.settle(challenge, probe.money.sign(challenge, payer)))


@check("2.1/validity", baseline="payment", needs="funds", pays=1, waits=_late_s)
async def requirements_end(probe: Probe) -> None:
    """Once maxTimeoutSeconds have passed, even a fresh authorization is refused."""
    challenge, payer = await probe.challenge(), await probe.money.payer()
    await probe.wait(_timeout_s(challenge) + LATE_S)
    await _refused(probe, challenge, payer, probe.money.sign(challenge, payer))


def _timeout_s(challenge: Challenge) -> int:
    seconds = challenge.requirements.get("maxTimeoutSeconds")
    if not isinstance(seconds, int) or seconds <= SOON_S:
        raise Inconclusive(f"the requirements are valid for {seconds!r} seconds")
    return seconds


async def _refused(
    probe: Probe, challenge: Challenge, payer: Wallet, header: str, **changed: Any
) -> None:
    """Fail unless changed requirements are refused, grant nothing and move no money."""
    expect_refused(await probe.settle(challenge, header, requirements=changed))
    expect_not_served(await probe.ask(payment_id=challenge.payment_id))
    await probe.world.expect_payments(payer)


async def _facilitator_takes(
    probe: Probe, challenge: Challenge, payer: Wallet, field: str, value: str
) -> None:
    """Make the world's facilitator accept any request that contains `value`, and settle nothing.

    A facilitator that serves several schemes, networks and tokens would accept it: only
    the service knows which of them it asked for.
    """
    if not probe.world.exists:
        return
    wanted = {**challenge.requirements, field: value}
    settled = {
        "x402Version": 1,
        "event": "payment.settled",
        "txHash": INVENTED_TX,
        "from": payer.address,
        "to": wanted["payTo"],
        "value": wanted["maxAmountRequired"],
        "blockNumber": 1,
        "network": wanted["network"],
        "timestamp": "2026-01-01T00:00:00.000Z",
    }
    for path, said in (("/verify", {"isValid": True, "invalidReason": None}), ("/settle", settled)):
        fault = {"victim": "facilitator", "does": "answer", "path": path, "contains": value}
        body = msgspec.json.encode(said).decode()
        await probe.world.fault({**fault, "status": 200, "body": body})
