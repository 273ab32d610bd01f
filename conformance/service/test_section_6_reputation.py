"""Section 6: the indexer triggers reputation updates after payments are matched.

The specification shows neither the form of a reputation nor its place. A reputation in the list of
agents must change after a payment was matched.
"""

from typing import Any

from x402sim.payer import core
from x402sim.suite.service import expect
from x402sim.suite.service.answers import last_part, read_402, walk
from x402sim.suite.service.background import buy_late, turn_s
from x402sim.suite.service.case import case
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import NotApplicable


async def _reputations(probe: Probe, proof: dict[str, str]) -> list[Any]:
    body = (await probe.send("GET", probe.target.agents.path, headers=proof)).body
    found = [value for place, value in walk(body) if "reputation" in last_part(place).lower()]
    if not found:
        raise NotApplicable("the list of agents shows no reputation")
    return found


@case(
    "6/reputation",
    title="After the indexer has matched a payment, the displayed reputation has changed.",
    needs="funds, agents",
    pays=2,
    waits=turn_s,
    late=True,
    decisive=False,
)
async def a_matched_payment_counts(probe: Probe) -> None:
    answer, proof = await probe.send("GET", probe.target.agents.path), {}
    if answer.status == 402:
        proof = core.proofs((await probe.pay(read_402(answer))).challenge.payment_id)
    if probe.setting.advance is not None:  # let the indexer process the other payments
        await probe.wait(turn_s(probe.setting))
    before = await _reputations(probe, proof)
    await buy_late(probe)
    after = await probe.eventually(
        lambda: _reputations(probe, proof), turn_s(probe.setting), lambda found: found != before
    )
    expect.holds("another reputation than before", after != before, f"still {before}")
