"""Section 2.1: changed requirements in a payment settle nothing but the issued terms.

Each case changes one field. A target may refuse the payment, or ignore the requirements and settle
the terms that it has issued; the ledger and the opened resource show which. Where the authorization
is changed too, no settlement on the issued terms is possible.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum, parse_address
from x402sim.protocol.networks import NETWORKS
from x402sim.spec.ground import derived, explicit, silent
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge, whole
from x402sim.suite.service.case import ServiceCase, paid_case, refusal_case, session_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Inconclusive

ELSEWHERE = "0x" + "12" * 20
INVENTED_TX = "0x" + "ab" * 32
SOON_S, NEARLY_S, LATE_S = 15, 5, 15
"""Seconds before the end of the requirements to send them (planned, least), and after the end."""
USUAL_S = 300
DAY_S = 86_400
EXACTLY_THE_AMOUNT = explicit("5: The amount must equal", "2.1: maxAmountRequired")


SAME_ADDRESS = derived(
    "2.1: payTo",
    "2.1: asset",
    "4.1: paymentRequirements",
    so="The case of letters changes no address, so these are the issued requirements.",
)


def _another(clause: str, title: str, field: str, other: Callable[[str], str]) -> ServiceCase:
    """Return the check that requirements with another `field` settle nothing else."""

    @refusal_case(
        clause,
        title=f"Requirements with another {title} are refused, or the issued ones are settled.",
        disturbs=True,
    )
    async def what_is_changed_settles_nothing_else(probe: Probe) -> None:
        challenge, payer, header = await probe.signed()
        changed = other(probe.wallets.network(challenge).name)
        if probe.world.exists:  # one for several schemes, networks and tokens takes all of them
            wanted = {**challenge.requirements, field: changed}
            await probe.world.accept_all(payer, wanted, INVENTED_TX, changed)
        await _nothing_else(probe, challenge, payer, header, **{field: changed})

    return what_is_changed_settles_nothing_else


another_scheme = _another("2.1/scheme", "scheme", "scheme", lambda _: "upto")
another_network = _another(
    "2.1/network", "network", "network", lambda own: next(name for name in NETWORKS if name != own)
)
another_token = _another("2.1/asset", "token", "asset", lambda _: ELSEWHERE)


def _in_other_letters(clause: str, title: str, field: str) -> ServiceCase:
    """Return the check that an address is the same in lower case, and in EIP-55 spelling."""

    @paid_case(
        clause,
        title=f"Requirements whose {title} is in the other case, lower or EIP-55, are settled.",
        ground=SAME_ADDRESS,
    )
    async def other_letters_are_the_same(probe: Probe) -> None:
        challenge, _, header = await probe.signed()
        issued = str(challenge.requirements[field])
        lower, mixed = issued.lower(), checksum(parse_address(issued))
        changed = {field: mixed if issued == lower else lower}
        await probe.settles(challenge, header, requirements=changed)

    return other_letters_are_the_same


the_token_in_other_letters = _in_other_letters("2.1/asset", "token", "asset")
the_payee_in_other_letters = _in_other_letters("2.1/pay-to", "payee", "payTo")


@refusal_case(
    "2.1/asset",
    title="Requirements and authorization for another token are refused.",
    decisive=False,
)
async def another_token_is_refused(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    token = replace(probe.wallets.network(challenge), asset=parse_address(ELSEWHERE))
    await probe.expect_refused_if(payer, of=challenge, sent={"asset": ELSEWHERE}, network=token)


@refusal_case(
    "2.1/pay-to",
    title="Requirements and authorization with another payee, also a similar one, are refused.",
    pays=3,
)
async def another_payee_is_refused(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    payee = str(challenge.requirements["payTo"])
    alike = [payee[:22] + ELSEWHERE[22:], ELSEWHERE[:22] + payee[22:].lower()]
    for other in (payer.address, *(each.lower() for each in alike)):
        await probe.expect_refused_if(payer, of=challenge, sent={"payTo": other}, to=other)


@refusal_case(
    "2.1/amount",
    title="Requirements and authorization for another amount are refused.",
    ground=EXACTLY_THE_AMOUNT,
    pays=2,
)
async def another_amount_is_refused(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    for value in (1, challenge.amount_base + 1):
        changed = {"maxAmountRequired": str(value)}
        await probe.expect_refused_if(payer, of=challenge, sent=changed, value=value)


@refusal_case(
    "2.1/amount",
    title="An amount as number, or with a leading zero, is refused or settled as issued.",
    decisive=False,
)
async def another_spelling_of_the_amount_settles_nothing_else(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    for respelled in (f"0{challenge.amount_base}", challenge.amount_base):
        if await _nothing_else(probe, challenge, payer, header, maxAmountRequired=respelled):
            return


@session_case(
    "2.1/amount",
    title="Requirements and authorization for a session deposit of one base unit are refused.",
    ground=EXACTLY_THE_AMOUNT,
    pays=1,
)
async def a_smaller_deposit_is_refused(probe: Probe) -> None:
    payer, (max_spend, deposit) = await probe.wallets.payer(), await probe.deposit(5)
    await probe.expect_refused_if(payer, of=deposit, sent={"maxAmountRequired": "1"}, value=1)
    claim = await probe.ask_session(max_spend, payment_id=deposit.payment_id)
    await probe.expect_no_session(claim)


@refusal_case(
    "2.1/resource",
    title=("Requirements for another path are refused, or the issued ones are settled and opened."),
)
async def another_resource_opens_nothing_else(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    path = probe.target.protected.path
    sessions = [probe.target.sessions.path] if probe.target.sessions.exists else []
    for other in (*sessions, "/", path[:-1], f"{path}/", path.upper()):
        if await _nothing_else(probe, challenge, payer, header, resource=other):
            expect.withheld(await probe.ask(payment_id=challenge.payment_id, path=other))
            break
    if sessions:
        claim = await probe.ask_session(await probe.budget_for(1), payment_id=challenge.payment_id)
        await probe.expect_no_session(claim)


@refusal_case(
    "2.1/resource",
    title=("A deposit's id with requirements and payment of a quote, or vice versa, is refused."),
    ground=derived(
        "4.1: paymentId | string | yes",
        "4.1: paymentRequirements",
        "5: The amount must equal",
        so="Id and requirements are of one 402; the amount of another 402 is not required here.",
    ),
    needs="funds, sessions",
    deposits="0.02",
    decisive=False,
)
async def the_requirements_of_another_id_are_refused(probe: Probe) -> None:
    quote, payer = await probe.challenge(), await probe.wallets.payer()
    max_spend, deposit = await probe.deposit(2)
    if deposit.amount_base == quote.amount_base:
        raise Inconclusive("the deposit costs as much as the request")
    for wanted, other in ((quote, deposit), (deposit, quote)):
        header = probe.wallets.sign(wanted, payer)
        expect.refused(await probe.settle(wanted, header, payment_id=other.payment_id))
    for challenge in (quote, deposit):
        expect.not_served(await probe.ask(payment_id=challenge.payment_id))
    claim = await probe.ask_session(max_spend, payment_id=deposit.payment_id)
    await probe.expect_no_session(claim)
    await probe.world.expect_payments(payer)


@paid_case(
    "2.1/changed-description",
    title="Whether requirements with a changed description are settled.",
    ground=silent("2.1: description", "4.1: paymentRequirements"),
)
async def another_description(probe: Probe) -> None:
    challenge, _, header = await probe.signed()
    answer = await probe.settle(challenge, header, requirements={"description": "A present"})
    probe.observe("settled" if answer.is_receipt else f"refused: {answer.summary}")


def _late_s(setting: Setting) -> float:
    """Return the seconds until requirements have ended."""
    return (setting.target.payment_required.max_timeout_s or USUAL_S) + LATE_S


@refusal_case(
    "2.1/timeout",
    title="After maxTimeoutSeconds, requirements changed to last a day are refused.",
    waits=_late_s,
)
async def another_timeout_prolongs_nothing(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    await probe.wait(_timeout_s(challenge) + LATE_S)
    await probe.expect_refused_if(payer, of=challenge, sent={"maxTimeoutSeconds": DAY_S})


@refusal_case(
    "2.1/validity",
    title="Shortly before maxTimeoutSeconds have passed, the requirements can still be paid.",
    waits=_late_s,
)
async def requirements_are_valid_to_their_end(probe: Probe) -> None:
    begun_s, payer = probe.clock.now(), await probe.wallets.payer()
    challenge = await probe.challenge()
    ends_s = begun_s + _timeout_s(challenge)
    await probe.wait(ends_s - SOON_S - probe.clock.now())
    if probe.clock.now() > ends_s - NEARLY_S:
        raise Inconclusive("another check took so long that the requirements have nearly ended")
    await probe.settles(challenge, probe.wallets.sign(challenge, payer))


@refusal_case(
    "2.1/validity",
    title="Once maxTimeoutSeconds have passed, even a fresh authorization is refused.",
    waits=_late_s,
)
async def requirements_end(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    await probe.wait(_timeout_s(challenge) + LATE_S)
    await probe.expect_refused_if(payer, of=challenge)


def _timeout_s(challenge: Challenge) -> int:
    offered = challenge.requirements.get("maxTimeoutSeconds")
    seconds = whole(offered)
    if seconds is None or seconds <= SOON_S:
        raise Inconclusive(f"the requirements are valid for {offered!r} seconds")
    return seconds


async def _nothing_else(
    probe: Probe, challenge: Challenge, payer: Wallet, header: str, **changed: Any
) -> bool:
    """Fail unless changed requirements come to nothing, or are settled as they were issued.

    Returns whether they were settled.
    """
    answer = await probe.settle(challenge, header, requirements=changed)
    return await probe.expect_nothing_or_as_issued(challenge, payer, answer)
