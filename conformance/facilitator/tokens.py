"""Tokens that refuse, and tokens that are none: paused, blacklisting, without code, silent, taking
a fee. What settles nothing is no settlement, whatever its transaction's status says.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from msgspec.structs import replace as changed

from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, keccak256
from x402sim.suite import texts
from x402sim.suite.facilitator.case import Demand, Row, gas, only
from x402sim.suite.facilitator.payment import Dialect, Draft
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import ROUGH, ChainRoomKind
from x402sim.suite.facilitator.truth import (
    Observed,
    is_not_valid,
    must_not_settle,
    observe,
    valid_first,
    verified_and_settled,
    wastes_no_gas,
)
from x402sim.suite.row import Violation

ANVIL = ChainRoomKind(name="anvil", chain="anvil")
"""A room on an EVM, which runs the code of any token."""
PAYS = "the call cannot succeed, as the token says when asked; anybody can repeat it (SR6, SR7)"


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
            return await verified_and_settled(play, draft)
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
    return await verified_and_settled(play, _in_token(play, await play.draft(), token))


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
SILENT = _RICH + _ZERO
"""A token in which everybody is rich, and a transfer does nothing: no event, no revert."""
_EVENT = (
    # with the value in mem[0]: log3(0, 32, Transfer, from, to)
    bytes.fromhex("602435600435") + _push(abi.TRANSFER_EVENT) + bytes.fromhex("60205fa3")
)
_VALUE, _ONE_LESS = bytes.fromhex("6044355f52"), bytes.fromhex("6001604435035f52")
"""Put the signed amount into mem[0], or one base unit less."""


def _if(condition: bytes, body: bytes) -> bytes:
    """Return code that runs a body if the word on the stack is not zero."""
    jump = bytes.fromhex("1558") + _push(bytes([len(body) + 5])) + bytes.fromhex("0157")
    return condition + jump + body + b"\x5b"


def _token(transfer: bytes) -> bytes:
    """Return a token with only rich accounts, and a given transferWithAuthorization."""
    is_long = bytes.fromhex("36") + _push(b"\xa0") + bytes.fromhex("10")  # 0xa0 < calldatasize
    return _RICH + _answers(abi.AUTHORIZATION_STATE, bytes(32)) + _if(is_long, transfer) + _ZERO


TAKES_FEE = _token(_ONE_LESS + _EVENT)
"""A token that keeps a base unit of each transfer, and says so in its event."""
WORTHLESS = _token(_VALUE + _EVENT)
"""A worthless token whose event claims the signed transfer."""
MOST_GAS = 10_000_000
"""A limit, however generous: a hundred times as much as Circle's token takes."""
_BURN = (
    # n; jumpdest; n - 1; back to jumpdest unless n is 0: 34 gas each
    _push((MOST_GAS * 3 // 2 // 34).to_bytes(3)) + bytes.fromhex("5b6001900380586006900357" + "50")
)
BURNS = _token(_BURN + _VALUE + _EVENT)
"""The same token, but first burns one and a half times `MOST_GAS`."""
BURNING_WALLET = _BURN + _push(abi.VALID_SIGNATURE) + bytes.fromhex("5f5260205ff3")
"""A wallet that accepts every signature, and first burns as much gas (EIP-1271)."""


def _asks_wallets(own: Address) -> bytes:
    """Return the code of a token that asks payers with code, as Circle's does, and leaves all other
    calls to the token's own code at an address.
    """
    overloads = abi.TRANSFER_WITH_AUTHORIZATION, abi.TRANSFER_WITH_AUTHORIZATION_BYTES
    first, second = (_push(each) + b"\x14" for each in overloads)
    is_of_wallet = (
        bytes.fromhex("5f3560e01c80")
        + first
        + b"\x90"
        + second
        + b"\x17"
        # and extcodesize(from) is not 0
        + bytes.fromhex("6004353b151516")
    )
    asks = bytes.fromhex("5f5f5f5f5f6004355af1")  # call(gas, from, nothing)
    or_reverts = bytes.fromhex("5860080157" + "5f5ffd" + "5b")
    transfer = asks + or_reverts + _VALUE + _EVENT + b"\0"
    delegates = bytes.fromhex("365f5f37" + "5f5f365f") + _push(own) + bytes.fromhex("5af4")
    returns = bytes.fromhex("3d5f5f3e" + "5860080157" + "3d5ffd" + "5b" + "3d5ff3")
    return _if(is_of_wallet, transfer) + delegates + returns


REVERTS_WHEN_MINED = (
    # gasprice is 0 when it is asked, and not when it is mined
    bytes.fromhex("3a1558") + _push(b"\x08") + bytes.fromhex("01575f5ffd5b") + _RICH + _ZERO
)
"""A token that answers whoever tries, and reverts in a transaction."""


def _hostile(code: bytes) -> Callable[[Play], Awaitable[Observed]]:
    async def play_it(play: Play) -> Observed:
        token = Address(keccak256(play.draw())[12:])
        await play.room.controls.set_code(token, code)
        return await verified_and_settled(play, _in_token(play, await play.draft(), token))

    return play_it


async def _burns(play: Play) -> Observed:
    """Pay from an account whose code burns gas when asked by the token (EIP-7702: the key still
    signs), and in a token that burns gas.
    """
    room, draft = play.room, await play.draft()
    asset, controls = draft.network.asset, room.controls
    own, token = (Address(keccak256(play.draw())[12:]) for _ in range(2))
    code = await room.chain.code(asset)
    in_token = _in_token(play, await play.draft(), token)
    await controls.set_code(draft.auth.from_, BURNING_WALLET)
    await controls.set_code(own, code)
    await controls.set_code(token, BURNS)
    await controls.set_code(asset, _asks_wallets(own))
    pairs = []
    try:
        for each in (draft, in_token):
            await play.verify(each)
            pairs.append((each, await play.settle(each)))
    finally:
        await controls.set_code(asset, code)
    return await observe(play, *pairs)


def _is_bounded(_: Play, observed: Observed) -> Violation | None:
    for each in observed.money.sent:
        if each.gas_used > MOST_GAS:
            return Violation(
                demand="gas-has-a-limit",
                actual=f"{each.gas_used} gas; {observed.summary}",
                loss=gas(each.gas_wei, "gas that whoever pays could have burnt without a limit"),
            )
    return None


async def _named_by_payer(play: Play) -> Observed:
    """The payer accepts and signs another token; the shop requires the real one."""
    token, draft = Address(keccak256(play.draw())[12:]), await play.draft()
    await play.room.controls.set_code(token, WORTHLESS)
    paid = _in_token(play, draft, token)
    return await verified_and_settled(
        play, paid.with_value("requirements.asset", checksum(draft.network.asset))
    )


_MATCHES = texts.explicit(texts.TOKEN_AND_NETWORK)


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
    Row(
        section="token",
        slug="named-by-payer",
        play=_named_by_payer,
        kind=ANVIL,
        absent=only([Dialect.V2], "only version 2 repeats the token in the payment"),
        demands=[
            replace(each, ground=_MATCHES)
            for each in _refused(
                "A payment in another token than the requirements name", says=False
            )
        ],
    ),
    Row(
        section="token",
        slug="burns",
        play=_burns,
        kind=ANVIL,
        demands=[
            Demand(
                title="A settlement has a limit of gas, whatever the payer's wallet or token burns",
                ground=texts.derived(
                    texts.SAFETY,
                    so="the payer chooses the code that runs, and the relayer pays for it: without "
                    "a limit one payment takes all that a block can (SR6)",
                ),
                test=_is_bounded,
            )
        ],
    ),
]
