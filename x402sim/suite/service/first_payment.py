"""The first payment of a run, before the checks: does it reach the facilitator, and open anything?

It is the checks' baseline, too. What it shows to be wrong around the service, or in its target
file, ends the run in one line.
"""

import re

from x402sim.protocol.refusals import Refusal
from x402sim.suite.service.answers import Challenge, TargetAnswer
from x402sim.suite.service.engine import try_baseline
from x402sim.suite.service.places import walk
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.target import SPEC
from x402sim.suite.verdict import NotReady

BAD_GATEWAY = (502, 503, 504)
_CUT_OFF = re.compile(
    r"facilitator|upstream|econn|enotfound|eai_again|getaddrinfo|fetch failed|timed? ?out"
    r"|connect(ion)? (error|refused|failed|attempt)|unreachable|no route",
    re.IGNORECASE,
)
"""What a service says that cannot reach its facilitator, in an answer 5xx."""


async def pay_once(probe: Probe, challenge: Challenge) -> tuple[str, ...]:
    """Pay once, which is the checks' baseline too; return notes, and raise `NotReady`."""
    setting = probe.setting
    with_world = setting.control is not None and setting.advance is None
    payer = await probe.payer_of(challenge) if with_world else None
    if payer is not None:
        await probe.world.watch(payer)
    problem = await try_baseline(probe, "payment", payer)
    setting.baselines["payment"] = problem
    if problem is not None and (unseen := _unseen_content(probe)):
        raise NotReady(f"{setting.base_url}: {unseen}")
    lacks_money = problem is not None and Refusal.INSUFFICIENT_BALANCE.text in problem
    is_cut_off = problem is not None and probe.last is not None and _is_cut_off(probe.last)
    if setting.control is None and lacks_money:
        who = setting.options.payer.address if setting.options.payer else "of --payer-key"
        raise NotReady(
            f"the payer {who} lacks money; {problem}; fund it, give another --payer-key, or --world"
            " URL, which mints what payers need"
        )
    if setting.control is None and is_cut_off:
        raise NotReady(f"{setting.base_url}: {problem}; does its facilitator answer?")
    if payer is None or await probe.world.was_queried_about(payer):
        return ()
    assert setting.control is not None
    world = str(setting.control.http.base_url).rstrip("/").removesuffix("/_sim")
    unused = f"the world's facilitator was not asked about it ({world}/facilitator)"
    if is_cut_off or lacks_money:  # the world has given the payer money: another world is asked
        raise NotReady(f"{unused}, and {problem}; set FACILITATOR_URL of the service to it")
    if problem:
        cause = "the service has refused it by itself, or asks another one (see FACILITATOR_URL)"
        return (f"{problem}; {unused}: {cause}",)
    return (f"a payment was settled, but {unused}; set FACILITATOR_URL of the service to it",)


def _is_cut_off(answer: TargetAnswer) -> bool:
    """Tell whether a service that cannot reach its facilitator answers so."""
    is_broken = answer.broken != "" or answer.status in BAD_GATEWAY
    return is_broken or (answer.status >= 500 and _CUT_OFF.search(answer.text) is not None)


def _unseen_content(probe: Probe) -> str:
    """Return why a paid answer seems to have no content, if the target file is wrong about it.

    The endpoint of the specification has its content where the specification says (4.2).
    """
    endpoint, answer = probe.target.protected, probe.last
    if endpoint.path == SPEC.protected.path or answer is None or not probe.setting.paid_ids:
        return ""
    if answer.status != 200 or answer.has_content or not answer.may_be_receipt:
        return ""
    request = f"the paid {endpoint.method} {endpoint.path} is answered {answer.summary}"
    wanted = f"nothing is at protected.content = {endpoint.content!r}"
    if not isinstance(answer.body, dict):
        return f"{request}, and {wanted}: only content that is a JSON object can be recognized"
    seen = [place for place, _ in walk(answer.body) if place.count("/") == 1 and place != "/"]
    places = " or ".join(seen)
    line = f' (write content = "{places}" below [protected])' if " or " not in places else ""
    there = f"set it to where the content is ({places}) in the target file{line}"
    return f"{request}, and {wanted}: {there}"
