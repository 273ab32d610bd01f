"""Section 5: an entitlement opens exactly the paid resource, and nothing else.

The target decides whether a path in another spelling is the resource. No spelling may bypass the
payment.
"""

from x402sim.payer import core
from x402sim.spec.ground import derived, ours
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Paid, TargetAnswer, read_402
from x402sim.suite.service.case import refusal_case, unpaid_case
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.second import second_path
from x402sim.suite.verdict import Inconclusive, NotApplicable

ELSEWHERE = ("/other", "2", "-free", "/1/2")
"""Appended to a path, each makes a different path with the same prefix."""


def other_letters(path: str) -> list[str]:
    """Return paths with another case or a longer end, which a router may equate with `path`."""
    parent, last = path.rsplit("/", 1)
    lazy = [f"{path}/", f"{path}.json", f"{parent}/%25{ord(last[0]):02X}{last[1:]}"]
    return [*lazy, path.upper(), f"{parent}/{last.capitalize()}"]


def look_alikes(path: str) -> list[str]:
    """Return paths that a proxy or a router may normalise to `path`; by RFC 3986 they differ."""
    first, rest = path[1:].partition("/")[::2]
    ends = [f"{path}{end}" for end in ("//", ";a=b", "%00", "%20", "%09")]
    return [*ends, f"/{first}//{rest}"]


NO_PROOFS = (
    {"X-PAYMENT": "paid"},
    {"PAYMENT-SIGNATURE": "paid"},
    {"X-Payment-Verified": "true"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"Authorization": "Bearer paid"},
    {"Cookie": "paid=true"},
    {"Range": "bytes=0-"},
)
"""Headers that are no proof of payment."""


def spellings(path: str) -> list[str]:
    """Return other spellings of a path that a router may normalise to the path."""
    parent, last = path.rsplit("/", 1)
    first, rest = path[1:].partition("/")[::2]
    ends = [f"{path}{end}" for end in ("/.", "%2F", "?paid=true", "?")]
    inner = [f"/{first}{slash}{rest}" for slash in ("/./", "/x/../", "%2F", "%5C")]
    encoded = f"{parent}/%{ord(last[0]):02X}{last[1:]}"
    elsewhere = f"{parent}/x/..;/{last}"
    return [*other_letters(path), *look_alikes(path), *ends, encoded, *inner, elsewhere]


async def _ask_paid(probe: Probe, path: str, paid: Paid) -> None:
    """Request a path with the payment for the protected path; fail if the payment opens it.

    A path with other slashes may name the same resource, if the 402 there has the same resource.
    """
    answer = await _ask(probe, path, paid)
    if answer.has_content and _letters(path) == _letters(probe.target.protected.path):
        unpaid = await _ask(probe, path)
        named = paid.challenge.requirements["resource"]
        if unpaid.status == 402 and read_402(unpaid).requirements.get("resource") == named:
            return
    expect.withheld(answer)


def _letters(path: str) -> str:
    return path.replace("/", "")


async def _ask(probe: Probe, path: str, paid: Paid | None = None) -> TargetAnswer:
    method, body = probe.target.protected.method, probe.usual_body
    proof = core.proofs(paid.challenge.payment_id if paid else None)
    return await probe.send(method, path, json=body, headers=proof, may_break=True, as_is=True)


@unpaid_case(
    "5/resource-binding",
    title="Without proof of payment, no spelling of the protected path returns its content.",
    ground=derived(
        "5: Access to protected endpoints",
        so="However its path is spelled, the protected content is served for a proof only.",
    ),
)
async def another_spelling_is_no_way_around(probe: Probe) -> None:
    protected = probe.target.protected
    for path in spellings(protected.path):
        expect.withheld(await _ask(probe, path))
    for headers in NO_PROOFS:
        answer = await probe.send(
            protected.method, protected.path, json=probe.usual_body, headers=headers, may_break=True
        )
        expect.withheld(answer, f"{headers}")


@refusal_case(
    "5/resource-binding",
    title="The id of a deposit does not open the resource, also if its payer has bought that.",
    ground=derived(
        "5: Otherwise look",
        "5: An entitlement is valid only",
        so="The record that grants has the same id and resource: the payer is not enough.",
    ),
    needs="funds, sessions",
    deposits="0.02",
)
async def a_deposit_does_not_open_the_quote(probe: Probe) -> None:
    payer = await probe.wallets.payer()
    await probe.buy(payer)
    deposit = await probe.pay((await probe.deposit(2))[1], payer)
    expect.not_served(await probe.ask(payment_id=deposit.challenge.payment_id), is_402=True)
    for path in spellings(probe.target.protected.path):
        expect.withheld(await _ask(probe, path, deposit))


@refusal_case(
    "5/resource-binding",
    title="If the list of agents costs money, its payment does not open another resource.",
    needs="funds, agents",
    decisive=False,
)
async def a_list_of_agents_does_not_open_the_quote(probe: Probe) -> None:
    listed = await probe.send("GET", probe.target.agents.path)
    if listed.status != 402:
        raise NotApplicable("the list of agents costs nothing")
    paid = await probe.pay(read_402(listed))
    expect.not_served(await probe.ask(payment_id=paid.challenge.payment_id), is_402=True)


@refusal_case(
    "5/resource-binding",
    title="The payment for one path opens no other path that is sold, nor the reverse.",
    ground=derived(
        "5: When it is present",
        "5: Otherwise look",
        so="An entitlement and a stored record open the path that they are for, and no other.",
    ),
    pays=2,
)
async def what_is_paid_for_one_path_opens_no_other(probe: Probe) -> None:
    other, paid = await second_path(probe), await probe.buy()
    answer = await other.ask(probe, paid.challenge.payment_id)
    expect.not_served(answer, is_402=True)
    bought = await probe.pay(read_402(await other.ask(probe)))
    opened = await other.ask(probe, bought.challenge.payment_id)
    if not 200 <= opened.status < 300:
        raise Inconclusive(f"{other.path} is not served when it is paid for: {opened.summary}")
    answer = await probe.ask(payment_id=bought.challenge.payment_id)
    expect.not_served(answer, is_402=True)


@refusal_case(
    "5/resource-binding",
    title="The payment for a path opens no path with other letters or a longer end.",
    ground=derived(
        "5: When it is present",
        "5: An entitlement is valid only",
        so="A path with another letter, or with more at its end, is not exactly the resource.",
    ),
)
async def other_letters_are_another_resource(probe: Probe) -> None:
    paid, path = await probe.buy(), probe.target.protected.path
    for more in ELSEWHERE:
        expect.withheld(await _ask(probe, path + more, paid))
    for other in other_letters(path):
        await _ask_paid(probe, other, paid)


@refusal_case(
    "5/exact-path",
    title="The payment for a path opens no path with doubled slashes, blanks or parameters.",
    ground=ours(
        "5: When it is present",
        because="These are other paths (RFC 3986), though a proxy may change them on the way.",
    ),
)
async def a_path_that_looks_alike_is_another(probe: Probe) -> None:
    paid = await probe.buy()
    for path in look_alikes(probe.target.protected.path):
        await _ask_paid(probe, path, paid)
