"""Tokens that refuse, and tokens that are none: paused, blacklisting, without code, silent, taking
a fee. What settles nothing is no settlement, whatever its transaction's status says.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from msgspec.structs import replace as changed

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, keccak256
from x402sim.suite import texts
from x402sim.suite.facilitator.case import Demand, Row
from x402sim.suite.facilitator.payment import Draft
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import ROUGH, RoomKind
from x402sim.suite.facilitator.truth import (
    Observed,
    is_not_valid,
    must_not_settle,
    observe,
    valid_first,
    wastes_no_gas,
)

ANVIL = RoomKind(name="anvil", chain="anvil")
"""A room on an EVM, which runs the code of any token."""
PAYS = "the call cannot succeed, as the token says when asked; anybody can repeat it (SR6, SR7)"


async def _asked(play: Play, draft: Draft) -> Observed:
    verified = await play.verify(draft)
    answer = await play.settle(draft)
    return replace(await observe(play, (draft, answer)), verified=verified)


def _owners(
    do: Callable[[Draft], bytes], undo: Callable[[Draft], bytes], *, is_between: bool = False
) -> Callable[[Play], Awaitable[Observed]]:
    """Return the play in which the token's owner does something, and undoes it in the end."""

    async def play_it(play: Play) -> Observed:
        room, draft = play.room, await play.draft()
        owner, asset = room.owner.address_bytes, draft.network.asset
        if is_between:
            await valid_first(play, draft)
        await room.transact(owner, asset, do(draft))
        try:
            if is_between:
                return await observe(play, (draft, await play.settle(draft)))
            return await _asked(play, draft)
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
    """Return the same payment in another token of the same name, signed for that."""
    domain = changed(play.room.network.domain, verifying_contract=token)
    return draft.demanding("asset", checksum(token)).signed(domain=domain)


async def _without_code(play: Play) -> Observed:
    token = Address(keccak256(play.draw())[12:])
    return await _asked(play, _in_token(play, await play.draft(), token))


# --- hostile bytecode ------------------------------------------------------------------------


def _push(value: bytes) -> bytes:
    return bytes([0x5F + len(value)]) + value


def _answers(selector: bytes, word: bytes) -> bytes:
    """Return code that returns a word if a function is called, and goes on otherwise."""
    body = _push(word) + bytes.fromhex("5f5260205ff3")  # mstore(0, word); return(0, 32)
    test = bytes.fromhex("5f3560e01c") + _push(selector) + bytes.fromhex("14")  # selector ==
    # iszero, push the length to skip + pc, jumpi; built with a relative jump by pc
    jump = bytes.fromhex("1558") + _push(bytes([len(body) + 5])) + bytes.fromhex("0157")
    return test + jump + body + b"\x5b"


_RICH = _answers(abi.BALANCE_OF, b"\x01" + bytes(15))
_ZERO = bytes.fromhex("5f5f5260205ff3")
"""Return a word of zero."""
_PUT = "35"  # calldataload
SILENT = _RICH + _ZERO
"""A token in which everybody is rich, and a transfer does nothing: no event, no revert."""
_EVENT = (
    # mem[0] = value - 1: what arrives
    bytes.fromhex("6001604435035f52")
    + bytes.fromhex("602435600435")
    + _push(abi.TRANSFER_EVENT)
    + bytes.fromhex("60205fa3")  # log3(0, 32, Transfer, from, to)
)
TAKES_FEE = (
    _RICH
    + _answers(abi.AUTHORIZATION_STATE, bytes(32))
    # of a call that is as long as a transfer with an authorization
    + bytes.fromhex("36")
    + _push(b"\xa0")
    + bytes.fromhex("10")  # 0xa0 < calldatasize
    + bytes.fromhex("1558")
    + _push(bytes([len(_EVENT) + 5]))
    + bytes.fromhex("0157")
    + _EVENT
    + b"\x5b"
    + _ZERO
)
"""A token that keeps a base unit of each transfer, and says so in its event."""
REVERTS_WHEN_MINED = (
    # gasprice is 0 when it is asked, and not when it is mined
    bytes.fromhex("3a1558") + _push(b"\x08") + bytes.fromhex("01575f5ffd5b") + _RICH + _ZERO
)
"""A token that answers whoever tries, and reverts in a transaction."""


def _hostile(code: bytes) -> Callable[[Play], Awaitable[Observed]]:
    async def play_it(play: Play) -> Observed:
        token = Address(keccak256(play.draw())[12:])
        await play.room.controls.set_code(token, code)
        return await _asked(play, _in_token(play, await play.draft(), token))

    return play_it


def _refused(title: str, *, says: bool = True, verifies: bool = True) -> list[Demand]:
    demands = [
        Demand(
            title=f"{title}: nothing is settled",
            ground=texts.derived(
                texts.TRANSFER_IS_CORRECT,
                texts.SUCCESS_FIELD,
                so="no transfer of the amount has happened",
            ),
            test=must_not_settle,
        )
    ]
    if verifies:
        demands.append(
            Demand(
                title=f"{title}: it is not valid",
                ground=texts.derived(texts.SIMULATE, so="the transfer would not succeed"),
                test=is_not_valid,
                suffix="verify",
            )
        )
    return [*demands, wastes_no_gas(f"{title}: it costs no gas", PAYS)] if says else demands


ROWS = [
    Row(
        section="token",
        slug="paused",
        play=_owners(*_pause()),
        kind=ROUGH,
        demands=_refused("A payment while the token is paused"),
    ),
    Row(
        section="token",
        slug="paused-between",
        play=_owners(*_pause(), is_between=True),
        kind=ROUGH,
        demands=_refused("The token is paused between verify and settle", verifies=False),
    ),
    Row(
        section="token",
        slug="payer-blacklisted",
        play=_owners(*_listed("from_")),
        demands=_refused("A payment of a payer whom the token refuses"),
    ),
    Row(
        section="token",
        slug="payee-blacklisted",
        play=_owners(*_listed("to")),
        demands=_refused("A payment to a shop that the token refuses"),
    ),
    Row(
        section="token",
        slug="without-code",
        play=_without_code,
        demands=_refused("A payment in a token that has no code"),
    ),
    Row(
        section="token",
        slug="silent",
        play=_hostile(SILENT),
        kind=ANVIL,
        demands=_refused(
            "A payment in a token that says yes to everything and moves nothing",
            says=False,
            verifies=False,
        ),
    ),
    Row(
        section="token",
        slug="takes-a-fee",
        play=_hostile(TAKES_FEE),
        kind=ANVIL,
        demands=_refused(
            "A payment in a token that keeps a part of it", says=False, verifies=False
        ),
    ),
    Row(
        section="token",
        slug="reverts-when-mined",
        play=_hostile(REVERTS_WHEN_MINED),
        kind=ANVIL,
        demands=_refused(
            "A payment in a token that reverts in a transaction only", says=False, verifies=False
        ),
    ),
]
