"""Section 8: prices and times.

How long the cache keeps a payment needs a target whose clock can be advanced.
"""

from x402sim.spec.ground import derived
from x402sim.suite.service import expect
from x402sim.suite.service.answers import whole
from x402sim.suite.service.case import case, paid_case, unpaid_case
from x402sim.suite.service.control_api import eventually
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive, NotApplicable

HOUR_S = 3600
DAY_S = 24 * HOUR_S
SOON_S, NEARLY_S = 15, 5
"""Seconds before the end of its window to send an authorization (planned, least)."""
WINDOW_S = (-60, 300)
"""validAfter and validBefore, relative to signing."""


@unpaid_case(
    "8/quote-price",
    title="A quote costs 10000 base units, 0.01 of the token.",
    decisive=False,
)
async def the_price_of_a_quote(probe: Probe) -> None:
    price_base = probe.require_price()
    probe.by_target("protected.amount_base")
    asked = (await probe.challenge()).requirements["maxAmountRequired"]
    expect.equal("maxAmountRequired", asked, str(price_base))


@unpaid_case(
    "8/timeout",
    title="maxTimeoutSeconds is 300.",
    decisive=False,
)
async def how_long_requirements_are_valid(probe: Probe) -> None:
    timeout_s = probe.target.payment_required.max_timeout_s
    if timeout_s is None:
        raise NotApplicable("the target file leaves the timeout open")
    probe.by_target("payment_required.max_timeout_s")
    asked = (await probe.challenge()).requirements.get("maxTimeoutSeconds")
    expect.holds(f"maxTimeoutSeconds {timeout_s}", whole(asked) == timeout_s, asked)


@paid_case(
    "8/validity-window",
    title="An authorization valid from 60 s before signing to 300 s after is accepted.",
)
async def the_window_shown_is_taken(probe: Probe) -> None:
    challenge, _, header = await probe.signed(window_s=WINDOW_S)
    answer = await probe.settle(challenge, header)
    if "Authorization expired" in answer.text and not probe.world.exists:
        raise Inconclusive("the target's clock is not this machine's")
    probe.wallets.expect_settled(answer)


@paid_case(
    "8/validity-window",
    title="An authorization valid for 300 s is still accepted 285 s after it was signed.",
    ground=derived(
        "8: Authorization validity window",
        "2.3: The window is",
        so="validBefore is the latest execution time: until then it is valid.",
    ),
    waits=lambda _: WINDOW_S[1],
)
async def the_window_shown_is_taken_to_its_end(probe: Probe) -> None:
    challenge = await probe.challenge()
    timeout_s = whole(challenge.requirements.get("maxTimeoutSeconds"))
    if timeout_s is None or timeout_s < WINDOW_S[1]:
        raise NotApplicable(f"the requirements are valid for {timeout_s!r} s only")
    payer, ends_s = await probe.wallets.payer(), probe.clock.now_s() + WINDOW_S[1]
    header = probe.wallets.sign(challenge, payer, window_s=WINDOW_S)
    await probe.wait(ends_s - SOON_S - probe.clock.now())
    if probe.clock.now() > ends_s - NEARLY_S:
        raise Inconclusive("another check took so long that the authorization has nearly ended")
    await probe.settles(challenge, header)


async def _buy_into_empty_cache(probe: Probe) -> None:
    """Restart the target, which clears its cache, and pay ten minutes later."""
    await probe.world.post("crash")
    await probe.wait(600)
    await probe.buy()


@case(
    "8/cache-lifetime",
    title="In the cache of our own service, an entitlement lives for 24 hours.",
    needs="world, clock",
    decisive=False,
)
async def cached_for_a_day(probe: Probe) -> None:
    await _buy_into_empty_cache(probe)
    await probe.wait(DAY_S - 600)
    expect.equal(
        "entitlements cached after 23 h 50 min", await probe.world.cached_entitlements(), 1
    )
    await probe.wait(2 * HOUR_S + 600)
    expect.equal("entitlements cached after 26 h", await probe.world.cached_entitlements(), 0)


@case(
    "8/cache-sweep",
    title="An expired entitlement is removed from our own service's cache within the hour.",
    needs="world, clock",
    decisive=False,
)
async def cleared_within_the_hour(probe: Probe) -> None:
    await _buy_into_empty_cache(probe)
    await probe.wait(DAY_S + HOUR_S + 60)
    cached = await eventually(probe.clock, probe.world.cached_entitlements, lambda found: not found)
    expect.holds("an empty cache after 25 h", not cached, f"{cached} cached")
