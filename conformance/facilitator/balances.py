"""Balances, and allowances for Permit2: none, too little, and gone between verify and settle, or in
the same block.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from x402sim.protocol import abi
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import SPONSORED_PERMIT
from x402sim.spec.ground import Sentence
from x402sim.suite import texts
from x402sim.suite.dialect import BY_PERMIT2
from x402sim.suite.facilitator.case import (
    Demand,
    FacilitatorRow,
    case,
    demand,
    is_settled,
    only,
    told,
)
from x402sim.suite.facilitator.payment import PRICE_BASE, Draft
from x402sim.suite.facilitator.play import Observed, Play
from x402sim.suite.facilitator.room import ROUGH
from x402sim.suite.facilitator.truth import (
    is_not_valid,
    must_not_settle,
    no_server_errors,
    sends_nothing,
    success_is_this_transfer,
    wastes_no_gas,
)
from x402sim.suite.verdict import NotApplicable, Violation


async def _with(play: Play, balance_base: int) -> Observed:
    return await play.verified_and_settled(await play.draft(await play.room.payer(balance_base)))


def _allowed(allowed_base: int) -> Callable[[Play], Awaitable[Observed]]:
    """Return the play of a payer with money, who has allowed Permit2 only so much."""

    async def play_it(play: Play) -> Observed:
        return await play.verified_and_settled(await play.draft(allowed_base=allowed_base))

    return play_it


_ALLOWS = only(BY_PERMIT2, "EIP-3009 needs no allowance")
_UNPAYABLE = (
    "it is no verified payment: the balance is one of verify's own steps, and who signs it has "
    "nothing to lose"
)


def _refused(title: str, *sentences: Sentence) -> list[Demand]:
    ground = texts.explicit(*(sentences or (texts.BALANCE, texts.SUFFICIENT)))
    return [
        demand(f"{title} is not settled", ground)(must_not_settle),
        demand(f"{title} is not valid", ground, suffix="verify")(is_not_valid),
        sends_nothing(f"{title} costs no gas", _UNPAYABLE),
        demand(
            f"{title} is answered with a verdict, not a 5xx",
            texts.derived(
                *(sentences or (texts.BALANCE,)),
                texts.CODES,
                so="there are words for it: insufficient_funds, permit2_allowance_required",
            ),
            suffix="answer",
        )(no_server_errors),
    ]


def _settles(_: Play, observed: Observed) -> Violation | None:
    ((draft, answer),) = observed.pairs
    return is_settled(observed.money, draft, answer)


async def _needs_sponsor(play: Play) -> None:
    """Do nothing, or raise `NotApplicable` if the facilitator sponsors no permit."""
    extensions = (await play.get(play.dialect.supported_path)).fields.get("extensions")
    if not isinstance(extensions, list) or SPONSORED_PERMIT not in extensions:
        raise NotApplicable(f"GET /supported lists no extension {SPONSORED_PERMIT}")


async def _drained(play: Play, draft: Draft) -> None:
    await play.drained(draft, play.payee())


async def _unallowed(play: Play, draft: Draft) -> None:
    await play.room.transact(draft.auth.from_, draft.network.asset, abi.approve(PERMIT2, 0))


@case("balance/none", *_refused("A payment of a payer without money"))
async def _none(play: Play) -> Observed:
    return await _with(play, 0)


@case("balance/too-little", *_refused("A payment of a payer with 1 base unit too little"))
async def _too_little(play: Play) -> Observed:
    return await _with(play, PRICE_BASE - 1)


@case(
    "balance/exact",
    demand(
        "A payment of a payer with exactly the amount is settled",
        texts.explicit(texts.BALANCE, texts.SUFFICIENT),
    )(_settles),
)
async def _exact(play: Play) -> Observed:
    return await _with(play, PRICE_BASE)


@case(
    "balance/none",
    *_refused(
        "A payment with a forged permit for Permit2", texts.ALLOWANCE, texts.PERMIT_SIGNATURE
    ),
    variant="permit-forged",
    absent=_ALLOWS,
)
async def _forged_permit(play: Play) -> Observed:
    """The proxy ignores a permit that fails; the transfer after it reverts."""
    draft = await play.draft(allowed_base=0)
    forged, _ = draft.sponsored(by=await play.room.payer())
    return await play.verified_and_settled(forged)


@case(
    "balance/sponsored",
    demand(
        "A payment with the payer's permit for Permit2 settles without an allowance",
        texts.explicit(texts.SPONSORED),
    )(_settles),
    absent=_ALLOWS,
)
async def _sponsored(play: Play) -> Observed:
    await _needs_sponsor(play)
    paid, _ = (await play.draft(allowed_base=0)).sponsored()
    return await play.verified_and_settled(paid)


@case(
    "balance/sponsored",
    demand(
        "A payment settles although a stranger has used its permit for Permit2 before",
        texts.explicit(texts.DIRECT),
    )(_settles),
    variant="used-before",
    absent=_ALLOWS,
)
async def _used_permit(play: Play) -> Observed:
    """Anybody may send the permit: it fails a second time, and the allowance is there."""
    await _needs_sponsor(play)
    paid, permit = (await play.draft(allowed_base=0)).sponsored()
    stranger, asset = play.room.owner.address_bytes, play.room.network.asset
    await play.room.transact(stranger, asset, abi.permit(*permit))
    return await play.verified_and_settled(paid)


def _gone_between(
    title: str, leave: Callable[[Play, Draft], Awaitable[None]], **more: Any
) -> FacilitatorRow:
    async def play_it(play: Play) -> Observed:
        draft = await play.draft()
        await play.valid_first(draft)
        await leave(play, draft)
        return await play.observe((draft, await play.settle(draft)))

    return case(
        "balance/gone-between",
        demand(
            f"{title} is not settled",
            texts.derived(
                texts.SUCCESS_FIELD,
                texts.TRANSFER_IS_CORRECT,
                so="nothing moved, so nothing was settled",
            ),
        )(must_not_settle),
        wastes_no_gas(
            f"{title} costs no gas",
            "what was valid once may not be any more: a look just before sending is free",
        ),
        **more,
    )(play_it)


def _gone_in_the_pool(
    title: str, leave: Callable[[Play, Draft], Awaitable[None]], **more: Any
) -> FacilitatorRow:
    async def play_it(play: Play) -> Observed:
        draft = await play.draft()
        async with play.unmined():
            await leave(play, draft)
            answer = await play.settled_when_mined(draft)
        return await play.observe((draft, answer))

    return case(
        "balance/gone-in-the-pool",
        success_is_this_transfer(
            f"{title} earlier in the same block: the relayer's reverted transaction is no success"
        ),
        kind=ROUGH,
        **more,
    )(play_it)


@case(
    "balance/back",
    demand(
        "A payment refused for lack of money comes again with money",
        texts.silent(
            texts.BALANCE, why="whether a refusal is final is not said; the authorization is unused"
        ),
    )(told),
)
async def _back(play: Play) -> str:
    draft = await play.draft(await play.room.payer(0))
    first = await play.settle(draft)
    await play.room.chain.fund(draft.auth.from_, PRICE_BASE)
    second = await play.settle(draft)
    says = "settles" if second.succeeded else f"is refused still: {second.how}"
    return f"first {'settled' if first.succeeded else 'refused'}; with money it {says}"


ROWS = [
    *(
        case(
            f"balance/{slug}",
            *_refused(title, texts.ALLOWANCE),
            variant="allowance",
            absent=_ALLOWS,
        )(_allowed(allowed_base))
        for slug, title, allowed_base in (
            ("none", "A payment without an allowance for Permit2", 0),
            ("too-little", "A payment with an allowance of 1 base unit too little", PRICE_BASE - 1),
        )
    ),
    _gone_between("A payment without cover since verify", _drained),
    _gone_between(
        "A payment without an allowance since verify",
        _unallowed,
        variant="allowance",
        absent=_ALLOWS,
    ),
    _gone_in_the_pool("The payer's money leaves", _drained),
    _gone_in_the_pool(
        "The payer's allowance ends", _unallowed, variant="allowance", absent=_ALLOWS
    ),
]
