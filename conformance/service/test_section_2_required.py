"""Section 2.1 and 2.2: the contents of a 402, field by field."""

import re
from typing import Any

from x402sim.protocol.crypto import checksum, parse_address
from x402sim.protocol.money import to_base, to_decimal
from x402sim.spec.ground import derived, explicit
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge, TargetAnswer, read_402, whole
from x402sim.suite.service.case import case, paid_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.target import SHAPE, at
from x402sim.suite.verdict import CheckFailed, Inconclusive, NotApplicable, as_json

BASE_UNITS = re.compile(r"0|[1-9][0-9]*")
DECIMALS_CALL = "0x313ce567"
"""The selector of decimals()."""
BETWEEN_THOUSANDS = re.compile(r"(?<=\d)[,._' \u00a0\u202f](?=\d{3}(?!\d))")


async def _required(probe: Probe) -> TargetAnswer:
    """Return a 402, whatever its body is; raises `Inconclusive` for another status."""
    answer = await probe.unpaid()
    if answer.status != 402:
        raise Inconclusive(f"expected a 402, got {answer.summary}")
    return answer


async def _requirements(probe: Probe) -> dict[str, Any]:
    answer = await _required(probe)
    wanted = answer.requirements
    if not isinstance(wanted, dict):
        raise Inconclusive(f"the 402 has no requirements: {answer.summary}")
    return wanted


def _is_address(text: Any) -> bool:
    try:
        return any(parse_address(text))
    except (ValueError, TypeError, AttributeError):
        return False


@case(
    "2.1/requirements",
    title="Payment requirements have all fields of 2.1, each with its type.",
    decisive=False,
)
async def requirements_have_their_fields(probe: Probe) -> None:
    wanted = await _requirements(probe)
    for name in ("scheme", "network", "payTo", "asset", "maxAmountRequired", "resource"):
        expect.holds_form(f"{name}, a string", isinstance(wanted.get(name), str), wanted.get(name))
    seconds = wanted.get("maxTimeoutSeconds")
    expect.holds_form("maxTimeoutSeconds, an integer", whole(seconds) is not None, seconds)


@case(
    "2.1/scheme",
    title='The payment scheme is "exact".',
    ground=explicit("2.1: scheme"),
)
async def the_scheme_is_exact(probe: Probe) -> None:
    expect.equal_form("scheme", (await _requirements(probe)).get("scheme"), "exact")


@case(
    "2.1/network",
    title="Every 402 names the same network; with --world, it is the world's.",
    ground=derived(
        "2.1: network",
        "2.8: The selected network",
        so="A deployment has selected one network, so every 402 names that network.",
    ),
)
async def the_network_is_the_deployments(probe: Probe) -> None:
    named = (await _requirements(probe)).get("network")
    expect.holds_form("a network's name", isinstance(named, str) and bool(named), named)
    expect.equal_form(
        "the network of a second 402", (await _requirements(probe)).get("network"), named
    )
    if probe.world.exists:
        expect.equal_form("the network", named, (await probe.world.get("who"))["network"])


@case(
    "2.1/pay-to",
    title="payTo is an address, not the token's, and the one of --pay-to if given.",
    ground=explicit("2.1: payTo"),
)
async def pay_to_is_the_merchants_address(probe: Probe) -> None:
    wanted = await _requirements(probe)
    payee, asset = wanted.get("payTo"), wanted.get("asset")
    expect.holds_form("payTo, an address", _is_address(payee), payee)
    expect.holds_form("another address than the token's", payee != asset, payee)
    merchant = probe.setting.options.pay_to
    if merchant is not None:
        expect.equal_form("payTo", str(payee).lower(), checksum(merchant).lower())


@case(
    "2.1/asset",
    title="The asset is an address; with --world, it is the world's token.",
    ground=explicit("2.1: asset"),
)
async def the_asset_is_an_address(probe: Probe) -> None:
    asset = (await _requirements(probe)).get("asset")
    expect.holds_form("asset, an address", _is_address(asset), asset)
    if probe.world.exists:
        token = (await probe.world.get("who"))["asset"]
        expect.equal_form("the asset", str(asset).lower(), token.lower())


@case(
    "2.1/asset",
    title="The asset is a token contract with 6 decimals.",
    ground=explicit("2.1: asset", "2.1: maxAmountRequired"),
    needs="observe chain",
    decisive=False,
)
async def the_asset_is_a_token_of_6_decimals(probe: Probe) -> None:
    asset = (await _requirements(probe)).get("asset")
    code = await probe.chain.call("eth_getCode", asset, "latest")
    expect.holds_form("a contract at the asset's address", code not in ("0x", None), code)
    call = {"to": asset, "data": DECIMALS_CALL}
    expect.equal_form("decimals", int(await probe.chain.call("eth_call", call, "latest"), 16), 6)


@case(
    "2.1/amount",
    title="The amount is a string of base units, without sign, point or leading zero.",
    ground=derived(
        "2.1: maxAmountRequired",
        so="A base unit is not divided: an amount is a whole number of them, above zero.",
    ),
)
async def the_amount_is_a_string_of_digits(probe: Probe) -> None:
    amount = (await _requirements(probe)).get("maxAmountRequired")
    is_digits = isinstance(amount, str) and BASE_UNITS.fullmatch(amount) is not None
    expect.holds_form("maxAmountRequired, a string of digits", is_digits, as_json(amount))
    expect.holds("an amount above zero", amount != "0", as_json(amount))


@case(
    "2.1/timeout",
    title="The timeout is an integer above zero.",
    ground=derived(
        "2.1: maxTimeoutSeconds",
        so="What can be paid at all is valid for some time: the integer is above zero.",
    ),
)
async def the_timeout_is_an_integer(probe: Probe) -> None:
    seconds = (await _requirements(probe)).get("maxTimeoutSeconds")
    is_above_zero = (whole(seconds) or 0) > 0
    expect.holds_form("maxTimeoutSeconds, an integer above zero", is_above_zero, as_json(seconds))


@case(
    "2.1/resource",
    title="The resource is the path of the requested endpoint, also for a path with a query.",
    ground=explicit("2.1: resource", "4.2: Its resource"),
)
async def the_resource_is_the_path(probe: Probe) -> None:
    resource = (await _requirements(probe)).get("resource")
    paths = probe.resources(probe.target.protected.path)
    probe.by_target("protected.resource")
    expect.holds_form(f"the resource {' or '.join(paths)}", resource in paths, as_json(resource))
    answer = await probe.ask(path=probe.target.protected.path + "?from=list")
    if answer.status == 402:
        queried = read_402(answer).requirements.get("resource")
        expect.equal_form("the resource, with a query", queried, resource)


@case(
    "2.1/description-shown",
    title="The requirements of a 402 have a description, unless the target file denies one.",
    level="SHOULD",
)
async def a_402_has_a_description(probe: Probe) -> None:
    if not probe.target.payment_required.description:
        raise NotApplicable("the target file says that a 402 has no description")
    text = (await _requirements(probe)).get("description")
    expect.holds("a description, a string", isinstance(text, str) and bool(text), as_json(text))


@paid_case(
    "2.1/description",
    title="Requirements are accepted without the description, if they are accepted at all.",
    decisive=False,
)
async def the_description_need_not_be_sent_back(probe: Probe) -> None:
    challenge, _, header = await probe.signed()
    answer = await probe.settle(challenge, header, requirements={"description": None})
    if answer.is_receipt:
        return
    if (await probe.settle(challenge, header, requirements=challenge.requirements)).is_receipt:
        said = f"{answer.summary}, and with it a receipt"
        raise CheckFailed("without description", "a receipt", said)
    raise Inconclusive(f"no payment is settled: {answer.summary}")


@case(
    "2.2/body",
    title="A 402 has error text, payment id, requirements, network, and the amount in its message.",
)
async def a_402_says_what_it_is(probe: Probe) -> None:
    answer, places = await _required(probe), probe.target.payment_required
    probe.by_target(*SHAPE, "payment_required.network")
    if places.error:
        expect.equal_form("error", answer.at(places.error), places.error_text)
    payment_id, wanted = answer.at(places.payment_id), answer.requirements
    expect.holds("a payment id, a string", isinstance(payment_id, str), as_json(payment_id))
    expect.holds_form("requirements, an object", isinstance(wanted, dict), as_json(wanted))
    if places.network:
        expect.equal_form("network", answer.at(places.network), at(wanted, "/network"))
    _states_amount(probe, read_402(answer))
    if probe.target.sessions.exists:
        odd_cents = to_decimal(to_base(probe.target.sessions.smallest, 6) + 1_360_000, 6)
        _states_amount(probe, read_402(await probe.ask_session(odd_cents)))


def _states_amount(probe: Probe, challenge: Challenge) -> None:
    """Fail unless the message of a 402 states its amount; 10,000 is as good as 10000."""
    place = probe.target.payment_required.message
    probe.by_target("payment_required.message")
    if place:
        message = challenge.answer.at(place)
        text = BETWEEN_THOUSANDS.sub("", message) if isinstance(message, str) else ""
        is_stated = re.search(rf"(?<![\d.,]){challenge.amount_base}(?!\d)", text) is not None
        expect.holds(f"a message that states {challenge.amount_base}", is_stated, as_json(message))
