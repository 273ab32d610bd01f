"""Tokens that refuse, and false tokens: paused, blacklisting, without code, silent, taking a fee.

A transaction without a transfer is no settlement, whatever the transaction's status.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from msgspec.structs import replace as changed

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, keccak256
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import Demand, case, demand, gas, only
from x402sim.suite.facilitator.contract import ASKED_AT, code
from x402sim.suite.facilitator.payment import Draft
from x402sim.suite.facilitator.play import Observed, Play
from x402sim.suite.facilitator.room import ROUGH, ChainRoomKind
from x402sim.suite.facilitator.truth import (
    is_not_valid,
    must_not_settle,
    wastes_no_gas,
)
from x402sim.suite.verdict import Violation

ANVIL = ChainRoomKind(name="anvil", chain="anvil")
"""A room on an EVM, which runs the code of any token."""
PAYS = "the call cannot succeed, as the token says when asked; anybody can repeat it"


def _owners(
    do: Callable[[Draft], bytes], undo: Callable[[Draft], bytes], *, is_between: bool = False
) -> Callable[[Play], Awaitable[Observed]]:
    """Return the play of an act of the token's owner, undone in the end."""

    async def play_it(play: Play) -> Observed:
        room, draft = play.room, await play.draft()
        owner, asset = room.owner.address_bytes, draft.network.asset
        if is_between:
            await play.valid_first(draft)
        await room.transact(owner, asset, do(draft))
        try:
            if is_between:
                return await play.observe((draft, await play.settle(draft)))
            return await play.verified_and_settled(draft)
        finally:
            await room.transact(owner, asset, undo(draft))

    return play_it


def _listed(name: str) -> tuple[Callable[[Draft], bytes], Callable[[Draft], bytes]]:
    return (
        lambda draft: abi.calldata(abi.BLACKLIST, getattr(draft.auth, name)),
        lambda draft: abi.calldata(abi.UNBLACKLIST, getattr(draft.auth, name)),
    )


def _pause() -> tuple[Callable[[Draft], bytes], Callable[[Draft], bytes]]:
    return lambda _: abi.PAUSE, lambda _: abi.UNPAUSE


def _in_token(play: Play, draft: Draft, token: Address) -> Draft:
    """Return the same payment, signed for another token of the same name."""
    domain = changed(play.room.network.domain, verifying_contract=token)
    return draft.demanding("asset", checksum(token)).signed(domain=domain)


# --- hostile contracts -----------------------------------------------------------------------


MOST_GAS = 10_000_000
"""A generous limit: a hundred times the gas of Circle's token."""


def _hostile(name: str) -> Callable[[Play], Awaitable[Observed]]:
    async def play_it(play: Play) -> Observed:
        token = Address(keccak256(play.draw())[12:])
        await play.room.controls.set_code(token, code(name))
        return await play.verified_and_settled(_in_token(play, await play.draft(), token))

    return play_it


@demand(
    "A settlement has a limit of gas, whatever the payer's wallet or token burns",
    texts.derived(
        texts.SAFETY,
        so="the payer chooses the code that runs, and the relayer pays for it: without "
        "a limit one payment takes all that a block can",
    ),
)
def _is_bounded(_: Play, observed: Observed) -> Violation | None:
    for each in observed.money.sent:
        if each.gas_used > MOST_GAS:
            return Violation(
                demand="gas-has-a-limit",
                actual=f"{each.gas_used} gas; {observed.summary}",
                loss=gas(each.gas_wei, "gas that whoever pays could have burnt without a limit"),
            )
    return None


_MATCHES = texts.explicit(texts.TOKEN_AND_NETWORK)


def _refused(title: str, *, says: bool = True, verifies: bool = True) -> list[Demand]:
    demands = [
        demand(
            f"{title}: nothing is settled",
            texts.derived(
                texts.TRANSFER_IS_CORRECT,
                texts.SUCCESS_FIELD,
                so="no transfer of the amount has happened",
            ),
        )(must_not_settle)
    ]
    if verifies:
        demands.append(
            demand(
                f"{title}: not valid",
                texts.derived(texts.SIMULATE, so="the transfer would not succeed"),
                suffix="verify",
            )(is_not_valid)
        )
    return [*demands, wastes_no_gas(f"{title}: the relayer pays no gas", PAYS)] if says else demands


@case("token/without-code", *_refused("A payment in a token without code"))
async def _without_code(play: Play) -> Observed:
    token = Address(keccak256(play.draw())[12:])
    return await play.verified_and_settled(_in_token(play, await play.draft(), token))


@case(
    "token/named-by-payer",
    *[
        replace(each, ground=_MATCHES)
        for each in _refused("A payment in another token than the requirements name", says=False)
    ],
    kind=ANVIL,
    absent=only([Dialect.V2], "only version 2 repeats the token in the payment"),
)
async def _named_by_payer(play: Play) -> Observed:
    """The payer accepts and signs another token; the shop requires the real one."""
    token, draft = Address(keccak256(play.draw())[12:]), await play.draft()
    await play.room.controls.set_code(token, code("Worthless"))
    paid = _in_token(play, draft, token)
    return await play.verified_and_settled(
        paid.with_value("requirements.asset", checksum(draft.network.asset))
    )


@case("token/burns", _is_bounded, kind=ANVIL)
async def _burns(play: Play) -> Observed:
    """Pay from an account whose code burns gas, and in a token that burns gas.

    The real token is made to call the account's code; the account's key still signs (EIP-7702).
    """
    room, draft = play.room, await play.draft()
    asset, controls = draft.network.asset, room.controls
    token = Address(keccak256(play.draw())[12:])
    before = await room.chain.code(asset)
    in_token = _in_token(play, await play.draft(), token)
    await controls.set_code(draft.auth.from_, code("BurningWallet"))
    await controls.set_code(ASKED_AT, before)
    await controls.set_code(token, code("Burns"))
    await controls.set_code(asset, code("AsksWallets"))
    pairs = []
    try:
        for each in (draft, in_token):
            await play.verify(each)
            pairs.append((each, await play.settle(each)))
    finally:
        await controls.set_code(asset, before)
    return await play.observe(*pairs)


ROWS = [
    case("token/paused", *_refused("A payment while the token is paused"), kind=ROUGH)(
        _owners(*_pause())
    ),
    case(
        "token/paused-between",
        *_refused("The token is paused between verify and settle", verifies=False),
        kind=ROUGH,
    )(_owners(*_pause(), is_between=True)),
    case("token/payer-blacklisted", *_refused("A payment of a payer refused by the token"))(
        _owners(*_listed("from_"))
    ),
    case("token/payee-blacklisted", *_refused("A payment to a shop refused by the token"))(
        _owners(*_listed("to"))
    ),
    case(
        "token/silent",
        *_refused(
            "A payment in a token with a yes to every call and no transfer",
            says=False,
            verifies=False,
        ),
        kind=ANVIL,
    )(_hostile("Silent")),
    case(
        "token/takes-a-fee",
        *_refused("A payment in a token with a fee", says=False, verifies=False),
        kind=ANVIL,
    )(_hostile("TakesFee")),
    case(
        "token/reverts-when-mined",
        *_refused(
            "A payment in a token with reverts in transactions only", says=False, verifies=False
        ),
        kind=ANVIL,
    )(_hostile("RevertsWhenMined")),
]
