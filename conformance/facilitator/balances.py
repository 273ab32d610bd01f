"""Balances: none, too little, and gone between verify and settle, or in the same block."""

from dataclasses import replace

from x402sim.suite import texts
from x402sim.suite.facilitator.case import Demand, case
from x402sim.suite.facilitator.payment import PRICE_BASE
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import ROUGH
from x402sim.suite.facilitator.truth import (
    Observed,
    drained,
    is_not_valid,
    must_not_settle,
    no_server_errors,
    observe,
    sends_nothing,
    settled_when_mined,
    success_is_this_transfer,
    unmined,
    valid_first,
    wastes_no_gas,
)


async def _with(play: Play, balance_base: int) -> Observed:
    draft = await play.draft(await play.room.payer(balance_base))
    verified = await play.verify(draft)
    answer = await play.settle(draft)
    return replace(await observe(play, (draft, answer)), verified=verified)


_UNPAYABLE = (
    "it is no verified payment: the balance is one of verify's own steps, and who signs it has "
    "nothing to lose (SR5, SR6)"
)


def _refused(title: str) -> list[Demand]:
    return [
        Demand(
            title=f"{title} is not settled",
            ground=texts.explicit(texts.BALANCE, texts.SUFFICIENT),
            test=must_not_settle,
        ),
        Demand(
            title=f"{title} is not valid",
            ground=texts.explicit(texts.BALANCE, texts.SUFFICIENT),
            test=is_not_valid,
            suffix="verify",
        ),
        sends_nothing(f"{title} costs no gas", _UNPAYABLE),
        Demand(
            title=f"{title} is answered with a verdict, not a 5xx",
            ground=texts.derived(
                texts.BALANCE, texts.CODES, so="insufficient_funds is one of those words"
            ),
            test=no_server_errors,
            suffix="answer",
        ),
    ]


@case("balance/none", *_refused("A payment of a payer without money"))
async def _none(play: Play) -> Observed:
    return await _with(play, 0)


@case("balance/too-little", *_refused("A payment of a payer with 1 base unit too little"))
async def _too_little(play: Play) -> Observed:
    return await _with(play, PRICE_BASE - 1)


@case(
    "balance/gone-between",
    Demand(
        title="A payment without cover since verify is not settled",
        ground=texts.derived(
            texts.SUCCESS_FIELD,
            texts.TRANSFER_IS_CORRECT,
            so="nothing moved, so nothing was settled",
        ),
        test=must_not_settle,
    ),
    wastes_no_gas(
        "A payment without cover since verify costs no gas",
        "what was valid once may not be any more: a look just before sending is free (SR7)",
    ),
)
async def _gone(play: Play) -> Observed:
    draft = await play.draft()
    await valid_first(play, draft)
    await drained(play, draft, play.payee())
    return await observe(play, (draft, await play.settle(draft)))


@case(
    "balance/gone-in-the-pool",
    success_is_this_transfer(
        "The payer's money leaves earlier in the same block: the relayer's reverted "
        "transaction is no success"
    ),
    kind=ROUGH,
)
async def _gone_in_the_pool(play: Play) -> Observed:
    draft = await play.draft()
    async with unmined(play):
        await drained(play, draft, play.payee())
        answer = await settled_when_mined(play, draft)
    return await observe(play, (draft, answer))


@case(
    "balance/back",
    Demand(
        title="A payment refused for lack of money comes again with money",
        ground=texts.silent(
            texts.BALANCE,
            why="whether a refusal is final is not said; the authorization is unused",
        ),
    ),
)
async def _back(play: Play) -> str:
    draft = await play.draft(await play.room.payer(0))
    first = await play.settle(draft)
    await play.room.chain.fund(draft.auth.from_, PRICE_BASE)
    second = await play.settle(draft)
    says = "settles" if second.succeeded else f"is refused still: {second.how}"
    return f"first {'settled' if first.succeeded else 'refused'}; with money it {says}"
