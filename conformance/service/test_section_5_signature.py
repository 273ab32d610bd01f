"""Section 5: the signature proves that the payer authorized exactly this transfer."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import ZERO_ADDRESS, Address
from x402sim.protocol.header import authorization_of
from x402sim.protocol.networks import Network
from x402sim.spec.ground import explicit, silent
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge
from x402sim.suite.service.case import case, refusal_case
from x402sim.suite.service.control_api import another_chain
from x402sim.suite.service.inputs import high_s, low_v, one_bit_changed
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import CheckFailed

INVALID = "Invalid signature"
ANOTHER_TOKEN = Address(bytes.fromhex("5fbdb2315678afecb367f032d93f642f64180aa3"))
DOMAINS: dict[str, Callable[[Network], Network]] = {
    "another chain": lambda network: replace(network, chain_id=another_chain(network)),
    "another token": lambda network: replace(network, asset=ANOTHER_TOKEN),
    "another name": lambda network: replace(network, token_name="Another token"),  # noqa: S106
    "another version": lambda network: replace(network, token_version="0"),  # noqa: S106
}
"""Signing domains other than the 402's."""
BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "64 bytes": lambda signature: signature[:64],
    "66 bytes": lambda signature: signature + b"\0",
    "no bytes": lambda _: b"",
    "zeros": lambda _: bytes(65),
    "r and s swapped": lambda signature: signature[32:64] + signature[:32] + signature[64:],
    "the other v": lambda signature: signature[:64] + bytes([55 - signature[64]]),
    "one bit changed": one_bit_changed,
}


PROVES = explicit(
    "5: The signature proves", "4.1: If it is not valid, settlement fails", "7: Invalid signature"
)
"""The demand, with the sentences for the error's text."""


async def _refused(probe: Probe, header: str, *texts: str, what: str) -> None:
    """Pay a new 402 with a header; fail unless it is refused and grants nothing.

    `what` names the header's defect.
    """
    challenge = await probe.challenge()
    answer = await probe.settle(challenge, header)
    try:
        expect.refused(answer, *texts)
        expect.not_served(await probe.ask(payment_id=challenge.payment_id), is_402=True)
    except CheckFailed as failed:
        raise CheckFailed(
            f"{what}: {failed.what}",
            failed.expected,
            failed.actual,
            failed.show,
            failed.violation.demand,
        ) from failed


@refusal_case(
    "5/signature-proves",
    title="An authorization is refused unless its payer has signed exactly these fields.",
    ground=PROVES,
    pays=9,
)
async def what_the_payer_has_not_signed_is_refused(probe: Probe) -> None:
    challenge, payer = await probe.challenge(), await probe.wallets.payer()
    other = await probe.wallets.payer()
    for what, header in _forged(probe, challenge, payer, other):
        await _refused(probe, header, INVALID, what=what)
    header = probe.wallets.sign(challenge, payer)
    for name, change in BROKEN.items():
        resigned = probe.wallets.resigned(challenge, header, change)
        await _refused(probe, resigned, what=f"a signature of {name}")
    from_zero = probe.wallets.rewrite_header(challenge, header, from_=ZERO_ADDRESS)
    zeros = probe.wallets.resigned(challenge, from_zero, BROKEN["zeros"])
    await _refused(probe, zeros, what="from address zero, and a signature of zeros")
    await probe.world.expect_payments(payer)
    await probe.world.expect_payments(other)


def _forged(
    probe: Probe, challenge: Challenge, payer: Wallet, other: Wallet
) -> Iterator[tuple[str, str]]:
    """Yield defects, each with a header that the payer has not signed in this form."""
    sign, rewrite = probe.wallets.sign, probe.wallets.rewrite_header
    yield "signed with another key", sign(challenge, payer, by=probe.wallets.stranger())
    header = sign(challenge, payer)
    auth, _ = authorization_of(header)
    changed = "changed after signing"
    # by a second only: how a service judges the window is for other checks to say
    yield f"validAfter {changed}", rewrite(challenge, header, valid_after=auth.valid_after + 1)
    yield f"validBefore {changed}", rewrite(challenge, header, valid_before=auth.valid_before - 1)
    yield f"nonce {changed}", rewrite(challenge, header, nonce=auth.nonce[::-1])
    if other.address != payer.address:
        yield f"from {changed}", rewrite(challenge, header, from_=other.address_bytes)
    for_one = sign(challenge, payer, value=1)
    yield f"value {changed}", rewrite(challenge, for_one, value=challenge.amount_base)
    for_self = sign(challenge, payer, to=payer.address)
    yield f"to {changed}", rewrite(challenge, for_self, to=str(challenge.requirements["payTo"]))
    for name, elsewhere in DOMAINS.items():
        network = elsewhere(probe.wallets.network(challenge))
        yield f"signed for {name}", rewrite(challenge, sign(challenge, payer, network=network))


@case(
    "5/malleable-signature",
    title="Whether other forms of a valid signature are accepted: a high s, and v of 0 or 1.",
    ground=silent(
        why="The specification does not say which encodings of a valid signature are taken."
    ),
    needs="world",
)
async def other_forms_of_a_signature(probe: Probe) -> None:
    for name, change in {"s above half the order": high_s, "v of 0 or 1": low_v}.items():
        challenge, payer = await probe.challenge(), await probe.wallets.payer()
        header = probe.wallets.resigned(challenge, probe.wallets.sign(challenge, payer), change)
        answer = await probe.settle(challenge, header)
        paid = [challenge.amount_base] if answer.is_receipt else []
        await probe.world.expect_payments(payer, *paid)
        probe.observe(f"{name}: {answer.summary}")
