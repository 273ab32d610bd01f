"""Section 4.4: the deposit of a session is maxSpend, to the base unit, and opens the session."""

import asyncio
from decimal import Decimal, InvalidOperation
from typing import Any

from x402sim.payer.wallet import Wallet
from x402sim.protocol.money import to_base, to_decimal
from x402sim.rng import Stream
from x402sim.spec.ground import derived, ours, silent
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge, OpenSession, Paid, TargetAnswer, read_402
from x402sim.suite.service.case import case, session_case, unpaid_case
from x402sim.suite.service.inputs import examples, random_text
from x402sim.suite.service.probe import CENT_BASE, Probe
from x402sim.suite.service.target import SHAPE, at
from x402sim.suite.verdict import CheckFailed, Inconclusive, NotApplicable, as_json

EXACT = ("8.20", "0.29", "1.00", "0.01", "4.35", "1.10", "0.57", "10.00", "4321.09", "98765432.19")
"""Amounts with two fraction digits; floating point gets most of them wrong."""
DEPOSIT = "1.00"
RANDOM_INPUTS = 8
DURATIONS = (60, 3600, 7200, 86_400)
NO_OTHER_PRICE = ours(
    "4.4: maxSpend",
    because="Nobody should pay for an amount that was not asked for, whatever is accepted.",
)
LARGE = "4321.09"
"""More than 2^32 base units."""
MALFORMED: tuple[Any, ...] = (
    *("", " ", "abc", "1,50", "12abc", "1e", "0x10", "NaN", "Infinity", "-1.00", "--1.00"),
    *("1.00.00", "1_0.00", "1/2", "1.0000001", "1\u066b50", "1e2", "1.005", "0.00", "$1.00"),
    *(None, [], {}, True, 1.5, -3, 1e300),
)


@case(
    "4.4/deposit-402",
    title="A request for a session gets a 402 with the body of 2.2 and the deposit as amount.",
    ground=derived(
        "4.4: Response: 402",
        "4.4: maxSpend",
        "2.2: paymentRequirements",
        so="A 402 has the body of 2.2, and the deposit of the budget is what is to be paid.",
    ),
    needs="sessions",
)
async def a_session_asks_for_its_deposit(probe: Probe) -> None:
    max_spend = _usual(probe)
    answer, places = await probe.ask_session(max_spend), probe.target.payment_required
    expect.holds_form("status 402", answer.status == 402, f"{answer.summary}{answer.cure}")
    probe.by_target(*SHAPE)
    if places.error:
        expect.equal_form("error", answer.at(places.error), places.error_text)
    payment_id, wanted = answer.at(places.payment_id), answer.requirements
    is_id = isinstance(payment_id, str) and payment_id.startswith("pay_")
    expect.holds("a payment id pay_…", is_id, as_json(payment_id))
    expect.holds_form("requirements, an object", isinstance(wanted, dict), as_json(wanted))
    expect.equal_form("the scheme", wanted.get("scheme"), "exact")
    expect.equal_form(
        "maxAmountRequired", wanted.get("maxAmountRequired"), str(to_base(max_spend, 6))
    )


def _usual(probe: Probe) -> str:
    """Return a deposit that every service accepts."""
    return max(DEPOSIT, probe.target.sessions.smallest, key=lambda amount: to_base(amount, 6))


@case(
    "4.4/deposit-402",
    title=("The requirements of a deposit name the deployment's network, and the session's path."),
    ground=derived(
        "4.4: Response: 402",
        "2.1: network",
        "2.1: resource",
        "2.8: The selected network",
        so="A deposit's requirements follow 2.1: the deployment's network, the requested path.",
    ),
    needs="sessions",
)
async def the_deposit_is_for_the_session_on_the_same_network(probe: Probe) -> None:
    quote, target = (await probe.challenge()).requirements, probe.target
    wanted = read_402(await probe.ask_session(_usual(probe))).requirements
    expect.equal("the network of the deposit", wanted.get("network"), quote.get("network"))
    resource, paths = wanted.get("resource"), probe.resources(target.sessions.path)
    probe.by_target("protected.resource")
    expect.holds_form(f"the resource {' or '.join(paths)}", resource in paths, as_json(resource))


@case(
    "4.4/max-spend",
    title="The deposit is exactly maxSpend in base units, without float rounding.",
    needs="sessions",
)
async def the_deposit_is_exact(probe: Probe) -> None:
    await _expect_exact(probe, {to_base(max_spend, 6) // CENT_BASE for max_spend in EXACT})


async def _expect_exact(probe: Probe, amounts: set[int]) -> None:
    """Fail unless the 402s for amounts in cents ask for exactly these amounts.

    A service may refuse small and large deposits, but no deposit between two accepted deposits.
    """
    spelled = {cents: to_decimal(cents * CENT_BASE, 6) for cents in sorted(amounts)}
    answers = {cents: await probe.ask_session(text) for cents, text in spelled.items()}
    taken = [cents for cents, answer in answers.items() if answer.status == 402]
    if not taken:
        answer = next(iter(answers.values()))
        said = f"{answer.summary}{answer.cure}"
        raise CheckFailed("requests for sessions", "402 with a deposit", said, answer.show)
    for cents, answer in answers.items():
        is_refusal = 400 <= answer.status < 500 or answer.status == 200
        if min(taken) <= cents <= max(taken) or not is_refusal:
            expect.equal(f"the deposit for {spelled[cents]}", _asked(answer), cents * CENT_BASE)


@case(
    "4.4/max-spend",
    title="A session that is to last longer costs no more: its deposit is maxSpend.",
    ground=derived(
        "4.4: maxSpend",
        "4.4: Response: 402",
        so="What is deposited is the budget, and maxSpend alone says how much that is.",
    ),
    needs="sessions",
)
async def the_deposit_does_not_depend_on_the_duration(probe: Probe) -> None:
    max_spend = _usual(probe)
    for duration in DURATIONS:
        answer = await probe.ask_session(max_spend, duration)
        if answer.status == 402:  # how long a session may last is not shown
            expect.equal(f"the deposit for {duration}", _asked(answer), to_base(max_spend, 6))


@case(
    "4.4/max-spend",
    title="Of concurrent 402s, each is for its own deposit, or for a quote.",
    ground=derived(
        "4.4: maxSpend",
        "2.1: resource",
        so="Each 402 is about its own request, also beside others.",
    ),
    needs="sessions",
)
async def who_asks_at_the_same_time_gets_his_own_402(probe: Probe) -> None:
    smallest, price_base = to_base(_usual(probe), 6), (await probe.challenge()).amount_base
    deposits = [smallest + cents * CENT_BASE for cents in (0, 29, 43, 7)]
    sent = [probe.ask_session(to_decimal(base, 6)) for base in deposits]
    answers = await asyncio.gather(*sent, *(probe.ask() for _ in deposits))
    wanted = [*deposits, *(price_base for _ in deposits)]
    for answer, base in zip(answers, wanted, strict=True):
        if answer.status == 402:
            expect.equal("maxAmountRequired", _asked(answer), base, answer.show)


@unpaid_case(
    "4.4/max-spend",
    title="A malformed maxSpend gets no 402; no spelling gets a 402 of another amount.",
    ground=NO_OTHER_PRICE,
    needs="sessions",
)
async def a_malformed_budget_has_no_price(probe: Probe) -> None:
    texts = examples("texts", RANDOM_INPUTS, lambda rng: random_text(rng, "0123456789.,+-_e ", 9))
    near = examples("decimals", RANDOM_INPUTS, _nearly_decimal)
    for max_spend in (*MALFORMED, *sorted({*texts, *near}, key=lambda each: (len(each), each))):
        _no_other_price(probe, max_spend, await probe.ask_session(max_spend))
    body = {"duration": probe.target.sessions.duration}
    nothing = await probe.send("POST", probe.target.sessions.path, json=body)
    is_refused = nothing.status != 402 and nothing.session_id is None
    expect.holds("a refusal without maxSpend", is_refused, nothing.summary)


def _nearly_decimal(rng: Stream) -> str:
    """Return a decimal with stray characters before, between or after the digits."""
    before, between = rng.choice(["", " ", "+", "-", "0"]), rng.choice([".", ",", ""])
    whole, fraction = rng.randint(0, 10 ** rng.randint(0, 4)), random_text(rng, "0123456789", 8)
    after = rng.choice(["", " ", "e", "%", "$"])
    return f"{before}{whole}{between}{fraction}{after}"


def _asked(answer: TargetAnswer) -> int:
    if answer.status != 402:
        raise CheckFailed("a request for a session", "402 with a deposit", answer.summary)
    return read_402(answer).amount_base


def _no_other_price(probe: Probe, max_spend: Any, answer: TargetAnswer) -> None:
    """Fail if a request opened a session, or got a 402 for another amount than requested.

    How strictly maxSpend is read is open, but 1,50 must not cost 1.00.
    """
    said = f"maxSpend {as_json(max_spend)}"
    is_open = answer.status < 300 and answer.session_id is not None
    expect.holds(f"{said}: no session without a deposit", not is_open, answer.summary)
    if answer.status == 402:
        wanted = at(answer.requirements, "/maxAmountRequired")
        exact = _exact_base(max_spend)
        demand = f"{said}: " + ("no 402" if exact is None else f"{exact}, or no 402")
        expect.holds(demand, exact is not None and wanted == str(exact), as_json(wanted))


def _exact_base(max_spend: Any) -> int | None:
    if isinstance(max_spend, bool) or not isinstance(max_spend, str | int | float):
        return None
    try:
        base = Decimal(str(max_spend)) * 10**6
        return int(base) if base > 0 and base == int(base) else None
    except (InvalidOperation, OverflowError, ValueError):
        return None


# --- once the deposit is paid ------------------------------------------------------------


async def _opened(probe: Probe, deposit: Challenge, payer: Wallet, max_spend: str) -> OpenSession:
    """Pay a deposit and claim its session; fail if the payment is refused."""
    header = probe.wallets.sign(deposit, payer)
    receipt = await probe.settle(deposit, header)
    if not receipt.may_be_receipt:
        probe.wallets.expect_settled(receipt)
    return await probe.claim(Paid(deposit, header, receipt, payer), max_spend)


@case(
    "4.4/deposit-flow",
    title="A deposit is settled like any payment, and then the session can be used.",
    control="payment",
    needs="funds, sessions",
    deposits="0.02",
)
async def a_paid_deposit_opens_a_session(probe: Probe) -> None:
    max_spend, challenge = await probe.deposit(2)
    session = await _opened(probe, challenge, await probe.wallets.payer(), max_spend)
    expect.served(await probe.ask(session_id=session.session_id))


@session_case(
    "4.4/deposit-flow",
    title="A deposit opens its session once paid, even if the session was requested earlier.",
    ground=derived(
        "1: Alternatively, a client funds",
        so="The session is there once it is funded, whatever was answered before.",
    ),
    deposits="0.01",
)
async def a_session_that_was_claimed_too_early(probe: Probe) -> None:
    max_spend, challenge = await probe.deposit(1)
    await probe.ask_session(max_spend, payment_id=challenge.payment_id)
    paid = await probe.pay(challenge)
    try:
        session = await probe.claim(paid, max_spend)
    except Inconclusive as unclear:  # the control has shown where an id is found
        raise CheckFailed("a session asked for early", "its id", str(unclear)) from unclear
    expect.served(await probe.ask(session_id=session.session_id))


@session_case(
    "4.4/deposit-flow",
    title="After deposits of a wrong amount, payee or signer were refused, a right one counts.",
    ground=derived(
        "4.4: The client pays the deposit",
        "5: The signature proves",
        "5: The amount must equal",
        so="A deposit is paid like any payment: exactly and signed. A refused one paid nothing.",
    ),
    needs="funds, sessions, world",
)
async def a_wrong_deposit_opens_nothing_and_spoils_nothing(probe: Probe) -> None:
    (max_spend, deposit), payer = await probe.deposit(2), await probe.wallets.payer()
    other = await probe.wallets.payer()
    wrong: tuple[dict[str, Any], ...] = (
        {"value": deposit.amount_base - 1},
        {"value": deposit.amount_base + 1},
        {"to": other.address},
        {"by": other},
    )
    for changes in wrong:
        expect.refused(await probe.settle(deposit, probe.wallets.sign(deposit, payer, **changes)))
        claim = await probe.ask_session(max_spend, payment_id=deposit.payment_id)
        await probe.expect_no_session(claim)
    await probe.world.expect_payments(payer)
    session = await _opened(probe, deposit, payer, max_spend)
    worth = deposit.amount_base // (await probe.challenge()).amount_base
    served = await probe.drain(session.session_id, worth + 1)
    expect.equal("requests served for the deposit", served, worth)


@case(
    "4.4/deposit-flow",
    title="A deposit of more than 2^32 base units, if the service takes it, opens a session.",
    ground=derived(
        "4.4: Response: 402",
        "2.1: maxAmountRequired",
        so="A deposit that is asked for can be paid, to the base unit, however large it is.",
    ),
    control="payment",
    needs="funds, sessions, world",
)
async def a_deposit_of_many_tokens(probe: Probe) -> None:
    required = await probe.ask_session(LARGE)
    if required.status != 402:
        raise NotApplicable(f"the target takes no deposit of {LARGE}: {required.summary}")
    challenge, payer = read_402(required), await probe.wallets.payer(LARGE)
    session = await _opened(probe, challenge, payer, LARGE)
    expect.served(await probe.ask(session_id=session.session_id))
    await probe.world.expect_payments(payer, to_base(LARGE, 6))


@case(
    "4.4/deposit-flow",
    title="Opening a session moves the deposit once; spending it moves nothing more.",
    ground=derived(
        "1: Alternatively, a client funds",
        "1: Each request is deducted",
        so=("The budget is funded once, and requests are deducted from it: nothing more is paid."),
    ),
    needs="funds, sessions, world",
    decisive=False,
)
async def the_deposit_is_what_is_paid(probe: Probe) -> None:
    session = await probe.open_session(await probe.budget_for(2))
    expect.served(await probe.ask(session_id=session.session_id))
    await probe.world.expect_payments(session.paid.payer, session.paid.challenge.amount_base)


@case(
    "4.4/deposit-flow",
    title="Two concurrent deposits of the same amount open two sessions.",
    ground=derived(
        "2.6: A session is identified",
        so="An id identifies one session: two deposits that open two sessions have two.",
    ),
    needs="funds, sessions",
    deposits="0.02",
    decisive=False,
)
async def every_session_has_its_own_id(probe: Probe) -> None:
    max_spend = await probe.budget_for(1)
    try:
        first, second = await asyncio.gather(*(probe.open_session(max_spend) for _ in range(2)))
    except Inconclusive:  # two at once may be too much
        first, second = [await probe.open_session(max_spend) for _ in range(2)]
    different = first.session_id != second.session_id
    expect.holds("two session ids", different, "the same id twice")


@case(
    "4.4/duration-unit",
    title="Whether a session of duration 1 expires after a second.",
    ground=silent("4.4: duration"),
    needs="funds, sessions",
    deposits="0.01",
)
async def the_unit_of_duration(probe: Probe) -> None:
    max_spend = await probe.budget_for(1)
    required = await probe.ask_session(max_spend, 1)
    if required.status != 402:
        probe.observe(f"duration 1: {required.summary}")
        return
    paid = await probe.pay(read_402(required))
    answer = await probe.ask_session(max_spend, 1, payment_id=paid.challenge.payment_id)
    session_id = paid.receipt.session_id or answer.session_id
    await probe.clock.sleep(1)
    is_over = not (await probe.ask(session_id=session_id)).has_content
    probe.observe("probably seconds: it has expired" if is_over else "longer: it is still served")
