"""Payers that are contracts (EIP-1271), accounts with code (EIP-7702), EIP-6492's wrapper.

The public texts speak of keys only, so support of such payers is only observed. But a facilitator
must be able to settle a payment that it calls valid, and must not call a payment valid that the
token refuses.
"""

from dataclasses import replace

from x402sim.chain import contract
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import UNDEPLOYED, Address, words
from x402sim.suite import texts
from x402sim.suite.facilitator.case import Demand, case, demand
from x402sim.suite.facilitator.payment import Draft
from x402sim.suite.facilitator.play import Observed, Play
from x402sim.suite.facilitator.truth import (
    is_not_valid,
    must_not_settle,
    success_is_this_transfer,
    wastes_no_gas,
)
from x402sim.suite.verdict import Violation

DELEGATED = bytes.fromhex("ef0100")
"""The first bytes in the code of an account that uses another account's code (EIP-7702)."""
PAYS = "the call cannot succeed, as the token says when asked; anybody can repeat it"


async def _wallet(play: Play, draft: Draft, *, owner: Wallet | None = None) -> Address:
    """Deploy the smart wallet of the draft's payer, or of another owner, with tokens."""
    account = contract.wallet_address(draft.auth.from_)
    slots = contract.wallet_storage((owner or draft.wallet).address_bytes)
    await play.room.controls.set_code(account, contract.wallet_code(), slots)
    await play.room.chain.fund(account, 10**6)
    if draft.permit:
        await play.room.allow(account, 10**6)
    return account


def _wrapped(signature: bytes, factory: bytes = b"\x44" * 20) -> bytes:
    """Return a signature in EIP-6492's wrapper: (factory, call, signature) and its magic."""
    call = b"\x12\x34\x56\x78"
    padded = call.ljust(32, b"\0"), signature + bytes(-len(signature) % 32)
    head = words(factory, 0x60, 0xA0, len(call)) + padded[0] + words(len(signature)) + padded[1]
    return head + UNDEPLOYED


# --- demands ---------------------------------------------------------------------------------


def _agrees(_: Play, observed: Observed) -> Violation | None:
    ((draft, answer),) = observed.pairs
    verified = observed.verified
    if verified is None or not verified.is_valid or observed.moved(draft):
        return None
    return Violation(
        demand="valid-settles-as-signed",
        actual=f"verify: {verified.how}; settle: {answer.how}; {observed.money.summary}",
    )


def _observed(_: Play, observed: Observed) -> str:
    (answer,) = observed.all_answers
    valid = "valid" if observed.verified and observed.verified.is_valid else "not valid"
    return f"{valid}; {'settled' if answer.succeeded else f'not settled: {answer.reason}'}"


def _taken_or_not(title: str) -> list[Demand]:
    return [
        demand(
            f"{title}: if called valid, the payment settles",
            texts.derived(
                texts.SIMULATE,
                texts.IS_VALID,
                so="nothing has changed in between: the verdict off the chain is that of the chain "
                "(x402-foundation/x402#961, #2658)",
            ),
        )(_agrees),
        replace(success_is_this_transfer(f"{title}: a success is a transfer"), suffix="true"),
        demand(
            f"{title}: accepted or refused?",
            texts.silent(texts.RECOVERS, why="the text speaks of keys; EIP-3009 tokens ask"),
        )(_observed),
    ]


def _never(title: str, *, verifies: bool = True) -> list[Demand]:
    so = "the token refuses it, so the transfer would not succeed"
    found = [
        demand(
            f"{title} is not settled", texts.derived(texts.SIGNATURE, texts.SUCCESS_FIELD, so=so)
        )(must_not_settle),
        wastes_no_gas(f"{title} costs no gas", PAYS),
    ]
    if not verifies:
        return found
    return [
        *found,
        demand(
            f"{title} is not valid",
            texts.derived(texts.SIGNATURE, texts.SIMULATE, so=so),
            suffix="verify",
        )(is_not_valid),
    ]


@case("wallet/contract", *_taken_or_not("A payment of a contract wallet"))
async def _of_contract(play: Play) -> Observed:
    draft = await play.draft()
    account = await _wallet(play, draft)
    return await play.verified_and_settled(draft.signed(from_=account))


@case(
    "wallet/contract-wrapped",
    *_taken_or_not("A payment of a deployed wallet, signed in EIP-6492's wrapper"),
)
async def _of_contract_wrapped(play: Play) -> Observed:
    draft = await play.draft()
    own = draft.signed(from_=await _wallet(play, draft))
    return await play.verified_and_settled(own.sealed(_wrapped(own.signature)))


@case("wallet/contract-forged", *_never("A stranger's payment from a wallet"))
async def _of_contract_forged(play: Play) -> Observed:
    draft = await play.draft()
    account = await _wallet(play, draft)
    return await play.verified_and_settled(draft.signed(from_=account, by=Wallet(play.draw())))


@case(
    "wallet/contract-changes",
    *_never("A payment with a signature no longer accepted by the wallet", verifies=False),
)
async def _of_contract_that_changes(play: Play) -> Observed:
    """The wallet has another owner at the settlement."""
    draft = await play.draft()
    own = draft.signed(from_=await _wallet(play, draft))
    await play.verify(own)
    await _wallet(play, draft, owner=Wallet(play.draw()))
    return await play.observe((own, await play.settle(own)))


@case(
    "wallet/not-deployed",
    *_never("A payment of a wallet without code, in a wrapper without deployment,"),
)
async def _not_deployed(play: Play) -> Observed:
    """Pay from a wallet that is not deployed, in a wrapper whose call deploys nothing."""
    draft = await play.draft()
    account = contract.wallet_address(draft.auth.from_)
    await play.room.chain.fund(account, 10**6)
    own = draft.signed(from_=account)
    return await play.verified_and_settled(own.sealed(_wrapped(own.signature)))


@case("wallet/not-deployed-bare", *_never("The owner's key signs for a wallet without code"))
async def _not_deployed_and_bare(play: Play) -> Observed:
    draft = await play.draft()
    account = contract.wallet_address(draft.auth.from_)
    await play.room.chain.fund(account, 10**6)
    return await play.verified_and_settled(draft.signed(from_=account))


@case("wallet/key-wrapped", *_taken_or_not("A key's signature in EIP-6492's wrapper"))
async def _key_wrapped(play: Play) -> Observed:
    draft = await play.draft()
    return await play.verified_and_settled(draft.sealed(_wrapped(draft.signature)))


@case("wallet/delegated", *_taken_or_not("A payment of an account with code (EIP-7702)"))
async def _delegated(play: Play) -> Observed:
    """Pay from an account with a smart wallet's code, which accepts the account's own key."""
    draft = await play.draft()
    code = DELEGATED + await _wallet(play, draft)
    await play.room.controls.set_code(draft.auth.from_, code)
    return await play.verified_and_settled(draft)


@case("wallet/delegated-elsewhere", *_never("A payment of an account with silent code (EIP-7702)"))
async def _delegated_elsewhere(play: Play) -> Observed:
    """Pay from an account whose code answers nothing: the token asks the code, never the key."""
    draft = await play.draft()
    await play.room.controls.set_code(draft.auth.from_, DELEGATED + draft.network.asset)
    return await play.verified_and_settled(draft)
