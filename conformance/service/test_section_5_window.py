"""Section 5: an authorization is valid between validAfter and validBefore only.

Clocks differ: without a world, the checks stay a minute away from the bounds; with a world,
whose clock is known, some seconds.
"""

import math
from email.utils import parsedate_to_datetime

from x402sim.protocol.header import authorization_of
from x402sim.spec.ground import derived
from x402sim.suite.service.answers import TargetAnswer
from x402sim.suite.service.case import case, refusal_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import Inconclusive

FAR_S = 60
NEAR_S = 10
SHORT_S, LATER_S = 5, 10
"""Seconds of validity of a short authorization, and seconds until a payer presents it."""
INSIDE_S = ((-1, 299), (-345, 15), (-2, 18))
"""Windows of at most 360 s, as the specification shows: a service may refuse longer windows."""
CENTURY_S = 100 * 365 * 86400


async def _refused(probe: Probe, *windows: tuple[int, int]) -> None:
    """Send an authorization with each window, in seconds from now; fail if any is accepted."""
    payer = await probe.wallets.payer()
    for window_s in windows:
        await probe.expect_refused_if(payer, window_s=window_s)


@refusal_case(
    "5/window",
    title="An authorization whose validBefore has passed, or not its validAfter, is refused.",
    pays=5,
    decisive="its beginning, its end",
)
async def outside_the_window(probe: Probe) -> None:
    far = [(CENTURY_S, 2 * CENTURY_S)] * probe.world.exists  # the user's own key would pay then
    await _refused(probe, (-10 * FAR_S, -FAR_S), (-CENTURY_S // 4, -CENTURY_S // 5))
    await _refused(probe, (FAR_S, 5 * FAR_S), (FAR_S, -FAR_S), *far)


@refusal_case(
    "5/window",
    title="An authorization is refused 1 s after its end, and 10 s before its start.",
    needs="world",
    decisive="its beginning, its end",
)
async def near_the_edges(probe: Probe) -> None:
    await _refused(probe, (-300, -1), (NEAR_S, 300))


@case(
    "5/window",
    title="An authorization that began 1 s ago, ends in 15 s, or lasts 20 s, is accepted.",
    ground=derived(
        "2.3: The window is",
        "5: An authorization outside",
        so="An authorization is valid from validAfter to validBefore, however short that is.",
    ),
    needs="world",
)
async def inside_its_edges(probe: Probe) -> None:
    for window_s in INSIDE_S:
        challenge, _, header = await probe.signed(window_s=window_s)
        begins_s = authorization_of(header)[0].valid_after
        answer = await probe.settle(challenge, header)
        if not answer.is_receipt and _time_of(answer) <= begins_s:
            raise Inconclusive("the target's clock is behind: it shows a time before validAfter")
        probe.wallets.expect_settled(answer)


@refusal_case(
    "5/window",
    title="An authorization that was valid when signed is refused after its validBefore.",
    waits=lambda _: LATER_S,
    decisive="its end",
)
async def presented_too_late(probe: Probe) -> None:
    end_s = probe.clock.now_s() + SHORT_S
    challenge, payer, header = await probe.signed(valid_before=end_s)
    await probe.wait(LATER_S)
    answer = await probe.settle(challenge, header)
    if answer.is_receipt and _time_of(answer) < end_s:
        raise Inconclusive("the target's clock is behind: it shows a time before validBefore")
    await probe.expect_nothing(challenge, payer, answer, "Authorization expired", is_402=True)


def _time_of(answer: TargetAnswer) -> float:
    """Return the time in an answer's header Date (Unix seconds); infinity without one."""
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return math.inf
