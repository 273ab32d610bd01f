"""Section 2.3: the payment header: its content and its validity."""

from collections.abc import Mapping
from typing import Any

import msgspec

from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.header import authorization_of, decode_header
from x402sim.spec.ground import derived
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge, TargetAnswer
from x402sim.suite.service.case import case, paid_case, refusal_case
from x402sim.suite.service.inputs import in_header, upper
from x402sim.suite.service.probe import Probe
from x402sim.suite.verdict import CheckFailed, Inconclusive, NotApplicable, plain

PARTS = ("from", "to", "value", "validAfter", "validBefore", "nonce", "signature")
"""The required fields of a header's payload (2.3)."""
AGO_S = 200
"""How long before the settlement the payer has signed; the window is 300 s."""
SAME = derived(
    "2.3: An opaque hex string",
    "2.3: It carries",
    so="Hex digits mean the same in upper and in lower case: the header stays the same.",
)


@paid_case(
    "2.3/hex-header",
    title="A payment header that is a hex string prefixed 0x is accepted.",
    pays=2,
)
async def a_hex_header_is_accepted(probe: Probe) -> None:
    _require_hex(probe)
    challenge, payer, header = await probe.signed(spelling="hex")
    answer = await probe.settle(challenge, header)
    other = probe.wallets.sign(challenge, payer, spelling="base64")
    await _settled_rather_than(probe, answer, challenge, other, "the same in base64 is settled")


@paid_case(
    "2.3/hex-header",
    title="A payment header whose hex digits are in upper case is accepted.",
    ground=SAME,
)
async def hex_digits_may_be_in_upper_case(probe: Probe) -> None:
    _require_hex(probe)
    challenge, _, header = await probe.signed(spelling="hex")
    await probe.settles(challenge, upper(header))


@case(
    "2.3/hex-header",
    title=("A payment header of odd length, with other characters, or without content is refused."),
    ground=derived(
        "2.3: An opaque hex string",
        "2.3: It carries",
        "4.1: Validate the parameters",
        so="Text without hex carries no authorization: there is nothing to settle.",
    ),
    control="payment",
    needs="funds",
    decisive=False,
)
async def a_header_that_is_no_hex_is_refused(probe: Probe) -> None:
    _require_hex(probe)
    challenge = await probe.challenge()
    for header in ("0x", "0x7b7", "0xpayment", "payment"):
        expect.refused(await probe.settle(challenge, header))
    expect.not_served(await probe.ask(payment_id=challenge.payment_id))


def _require_hex(probe: Probe) -> None:
    if probe.target.pay.spelling != "hex":
        raise NotApplicable(f"the target file says that headers are {probe.target.pay.spelling}")


@refusal_case(
    "2.3/contents",
    title=("A header without a field is refused, or settled exactly as signed."),
    ground=derived(
        "2.3: It carries",
        "4.1: Validate the parameters",
        "5: The signature proves",
        so="A header without a part proves nothing, unless the rest tells the missing part.",
    ),
)
async def a_header_without_one_of_its_parts_settles_nothing_else(probe: Probe) -> None:
    challenge, payer, header = await probe.signed()
    for part in PARTS:
        answer = await probe.settle(challenge, _packed(probe, header, {part: None}))
        if await probe.expect_nothing_or_as_issued(challenge, payer, answer):
            return


def _packed(probe: Probe, header: str, changes: Mapping[str, str | None]) -> str:
    """Return a header with changed fields of its payload; None leaves a field out."""
    fields: dict[str, Any] = msgspec.to_builtins(decode_header(header))
    changed = {**fields["payload"], **changes}
    payload = {name: value for name, value in changed.items() if value is not None}
    text = msgspec.json.encode({**fields, "payload": payload})
    return in_header(text, probe.target.pay.spelling)


@paid_case(
    "2.3/contents",
    title="Addresses in lower case, or nonce and signature in upper case, are accepted.",
    ground=SAME,
    pays=2,
)
async def letters_may_be_in_another_case(probe: Probe) -> None:
    for change, names in ((str.lower, ("from", "to", "asset")), (upper, ("nonce", "signature"))):
        challenge, _, header = await probe.signed()
        payload = msgspec.to_builtins(decode_header(header))["payload"]
        spelled = _packed(probe, header, {name: change(payload[name]) for name in names})
        await probe.settles(challenge, spelled)


@case(
    "2.3/contents",
    title="A payer's address, a nonce and a signature that begin with zeros are accepted.",
    ground=derived(
        "2.3: It carries",
        "5: The signature proves",
        so=(
            "They are bytes, and no numbers: of 256 payers and signatures, one begins with a zero."
        ),
    ),
    needs="world",
)
async def zeros_in_front_are_kept(probe: Probe) -> None:
    payer = await probe.wallets.payer(of=lambda wallet: wallet.address_bytes[0] == 0)
    challenge, signature, header = await probe.challenge(), b"1", ""
    while signature[0]:
        drawn, _ = authorization_of(probe.wallets.sign(challenge, payer))
        header = probe.wallets.sign(challenge, payer, nonce=bytes(4) + drawn.nonce[4:])
        _, signature = authorization_of(header)
    await probe.settles(challenge, header)
    expect.served(await probe.opened(challenge))


@paid_case(
    "2.3/contents",
    title="After the settlement, the chain has used the nonce of the header for its payer.",
    ground=derived(
        "2.3: It carries",
        "4.1: The facilitator executes",
        so="What is executed is the authorization in the header: the chain has used its nonce.",
    ),
    needs="funds, observe chain",
)
async def what_the_header_says_is_done(probe: Probe) -> None:
    paid = await probe.buy()
    receipt = await probe.chain.receipt(paid)
    auth, _ = authorization_of(paid.header)
    used = [
        log["topics"][1:]
        for log in receipt["logs"]
        if log["topics"] and log["topics"][0] == to_hex(abi.AUTHORIZATION_USED)
    ]
    wanted = [to_hex(abi.word(auth.from_)), to_hex(auth.nonce)]
    expect.holds(f"an event AuthorizationUsed of {plain(wanted)}", wanted in used, used)


@paid_case(
    "2.3/window",
    title="An authorization valid from 60 s before signing to 300 s after is accepted.",
    pays=2,
    decisive=False,
)
async def the_window_of_the_specification_is_accepted(probe: Probe) -> None:
    challenge, payer, header = await probe.signed(window_s=(-60, 300))
    answer = await probe.settle(challenge, header)
    # the user's own key signs for no hour
    began_s, ends_s = (probe.clock.now_s(), 3600) if probe.world.exists else (30, 240)
    other = probe.wallets.sign(challenge, payer, window_s=(-began_s, ends_s))
    instead = f"one valid for {ends_s} s is settled"
    await _settled_rather_than(probe, answer, challenge, other, instead)


@refusal_case(
    "2.3/window",
    title="An authorization signed 200 s ago is accepted, because its window has not ended.",
    ground=derived(
        "2.3: The window is",
        "2.3: The validity window shown",
        so="validBefore is the latest execution time: until then, the authorization is valid.",
    ),
)
async def a_payer_may_take_his_time(probe: Probe) -> None:
    challenge, _, header = await probe.signed(window_s=(-AGO_S - 60, -AGO_S + 300))
    await probe.settles(challenge, header)


async def _settled_rather_than(
    probe: Probe, answer: TargetAnswer, challenge: Challenge, other: str, instead: str
) -> None:
    """Fail if a payment was refused while an equivalent payment is accepted."""
    if answer.is_receipt:
        return
    if (await probe.settle(challenge, other)).is_receipt:
        raise CheckFailed("the settlement", "a receipt", f"{answer.summary}, although {instead}")
    raise Inconclusive(f"no payment is settled, in any form: {answer.summary}")
