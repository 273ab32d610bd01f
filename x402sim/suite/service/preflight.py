"""The preflight: examines whether a run can judge the target, before the first check.

Is the target reachable, of this dialect, in this world; is there money for the plan; do the clocks
agree; is real money protected? If not, `NotReady` tells in one line the finding, the expectation
and the remedy, instead of many inconclusive checks.

The first payment comes last, as the checks' control: does it reach the facilitator, and open
the resource?
"""

import os
import re
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from x402sim.clock import stopwatch
from x402sim.http.bounded import AnswerTooSlow
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.money import to_decimal
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.x402 import REQUIRED_HEADER
from x402sim.spec.ground import folder
from x402sim.spec.needs import Need
from x402sim.suite.service.answers import Challenge, TargetAnswer, begins, find, read_402, walk
from x402sim.suite.service.case import HOW_TO_PROVIDE, ServiceCase
from x402sim.suite.service.engine import try_control
from x402sim.suite.service.options import KEY_VARIABLE, REQUIRABLE
from x402sim.suite.service.plan import Estimate, costs, make_plan
from x402sim.suite.service.probe import BAD_BODY, Probe
from x402sim.suite.service.sending import CLOCKS_AGREE_S, why
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import SPEC, deviations
from x402sim.suite.subject import as_server, instead
from x402sim.suite.verdict import CheckFailed, Inconclusive, NotReady, Skipped
from x402sim.text.program import shown

SAMPLES, SAMPLES_S = (3, 20), 0.5
"""Requests to measure a round trip: the least number, and the most within `SAMPLES_S` seconds."""
_UNTRUSTED = re.compile(r"certificate verify failed: ([^(\]]+)")


def _init() -> str:
    """Return the command that writes a target file for a URL behind it."""
    return f"{shown()} target init"


async def examine(setting: Setting, checks: list[ServiceCase]) -> Estimate:
    """Examine the target before the checks; return the plan, and skip cases outside it.

    Raises `NotReady`.
    """
    try:
        return await _examine(setting, checks)
    except (Inconclusive, Skipped) as problem:
        raise not_ready(setting, problem) from problem
    except CheckFailed as failed:
        raise NotReady(f"{setting.base_url}: {failed.what}: {failed.actual}") from failed


async def _examine(setting: Setting, checks: list[ServiceCase]) -> Estimate:
    _require_needs(setting)
    probe = Probe(setting)
    answer = await probe.unpaid()
    if problem := await _why_unsuitable(probe, answer):
        raise NotReady(f"{setting.base_url}: {await _of_facilitator(probe) or problem}")
    challenge: Challenge | None = None
    with suppress(Inconclusive):  # the checks report it
        challenge = read_402(answer)
    plan = make_plan(
        setting,
        checks,
        costs(folder("service") / "costs.json"),
        price_base=challenge.amount_base if challenge else 0,
        round_trip_s=await _round_trip_s(probe),
    )
    if "payments" in setting.options.require and plan.left_out:
        raise NotReady(f"--require payments: {next(iter(plan.left_out.values()))}")
    setting.skip |= plan.left_out
    setting.planned_base = plan.signs_base
    plan = replace(plan, notes=_notes(setting))
    pays = any(Need.FUNDS in case.needs or Need.WORLD in case.needs for case in checks)
    if challenge is None or not pays or setting.missing(Need.FUNDS):
        return plan
    _require_same_time(setting, answer)
    if setting.control is None:
        await _require_money(probe, challenge, plan)
        if not plan.payments:  # nothing fits the budget, so nothing is paid
            return plan
    return replace(plan, notes=(*plan.notes, *await pay_once(probe, challenge)))


async def _round_trip_s(probe: Probe) -> float:
    """Return the seconds of a request, once the connection stands and the service is warm.

    The mean: a busy machine answers most requests at once, and some late.
    """
    least, most = SAMPLES
    elapsed = stopwatch()
    for number in range(1, most + 1):
        await probe.ask()
        if number >= least and elapsed() > SAMPLES_S:
            break
    return elapsed() / number


def _notes(setting: Setting) -> tuple[str, ...]:
    options, keys = setting.options, ", ".join(deviations(setting.target))
    moved = f"{options.given_url} is an endpoint; judging {options.base_url}"
    deviates = (
        f"the target file departs from the specification ({keys}), so the checks of these keys are "
        "observed, and do not count as passed"
    )
    is_moved = options.given_url not in ("", options.base_url)
    return (*((moved,) if is_moved else ()), *((deviates,) if keys else ()))


def _require_needs(setting: Setting) -> None:
    require = setting.options.require
    lacks = {
        name: HOW_TO_PROVIDE[REQUIRABLE[name]]
        for name in require
        if setting.missing(REQUIRABLE[name])
    }
    if "refunds" in require and (undue := _undue(setting)):
        lacks.setdefault("refunds", undue)
    if lacks:
        missing, how = list(lacks), "; ".join(dict.fromkeys(lacks.values()))
        empty = os.environ.get(KEY_VARIABLE) == "" and "payments" in missing
        note = f" ({KEY_VARIABLE} is set, and empty)" if empty else ""
        raise NotReady(f"--require {','.join(missing)}: this run lacks {how}{note}")


def _undue(setting: Setting) -> str:
    """Return why a missing refund cannot be judged; empty if it can be."""
    if setting.missing(Need.SESSIONS):
        return HOW_TO_PROVIDE[Need.SESSIONS]
    is_known = setting.advance is not None or setting.target.sessions.refund_within_s > 0
    if is_known or setting.options.patient:
        return ""
    return "the time of a refund: set sessions.refund_within_s in the target file, or --patient"


# --- reachable, and of this dialect ------------------------------------------------------


def not_ready(setting: Setting, problem: Exception) -> NotReady:
    """Return why a run cannot begin: the target gave no answer, or a useless one."""
    base = setting.base_url
    if isinstance(problem.__cause__, httpx.TransportError):
        return NotReady(f"no answer from {base}: {_todo(problem.__cause__, setting)}")
    return NotReady(f"{base}: {problem}")


def _todo(error: httpx.TransportError, setting: Setting) -> str:
    text = why(error)
    if isinstance(error, AnswerTooSlow):
        return f"{text}: give more seconds"
    if untrusted := _UNTRUSTED.search(text):
        return (
            f"its certificate is not trusted ({untrusted[1].strip()}); set "
            "SSL_CERT_FILE to a file with the certificate of the authority"
        )
    if "SSL" in text:
        return f"{text}; does it speak TLS there? Else give http://"
    if isinstance(error, httpx.RemoteProtocolError) and setting.http.base_url.scheme == "http":
        return f"{text}; does it want https://?"
    return f"{text}; is the service running?"


async def _why_unsuitable(probe: Probe, answer: TargetAnswer) -> str | None:
    """Return why the target is no service to judge, with a remedy; None for a service."""
    if await _is_site(probe, answer):
        return _no_service(probe, answer)
    endpoint, got = probe.target.protected, answer.summary
    request = f"{endpoint.method} {endpoint.path}"
    match answer.status:
        case 402:
            return _other_dialect(probe, answer)
        case 401 | 403 | 407 if await _is_closed(probe):
            if probe.setting.options.secrets:
                return f"the credentials of the URL or of --header are refused, with {got}"
            return f"every request is answered {got}: give --header NAME:VALUE with credentials"
        case 404 | 405 | 501:
            return await _elsewhere(probe, answer, request)
        case 301 | 302 | 303 | 307 | 308:
            return _redirected(probe.setting, answer, request)
        case status if status in BAD_BODY:
            return (
                f"{request} accepts no body of the target file: {got}; set protected.bodies in a "
                f"target file ({_init()} URL writes one)"
            )
        case status if status >= 500:
            return f"{request} answers {got}; is the service up, behind what answers here?"
        case _:
            return None


async def _is_site(probe: Probe, answer: TargetAnswer) -> bool:
    """Tell whether neither the resource nor the settlement endpoint answers in JSON."""
    if answer.body is not None or not (answer.status == 402 or 200 <= answer.status < 300):
        return False
    paid = await probe.send("POST", probe.target.pay.path, json={})
    return paid.body is None and (paid.status == 402 or 200 <= paid.status < 300)


async def _of_facilitator(probe: Probe) -> str | None:
    """Return the advice for a facilitator, known by `GET /supported`; None for other targets."""
    supported = await probe.send("GET", "/supported", may_break=True)
    if supported.status != 200 or not isinstance(supported.at("/kinds"), list):
        return None
    what = "it is a facilitator (GET /supported lists kinds), and no service"
    return f"{what}: {instead('facilitator')} --start COMMAND, or with its URL and --rpc"


def _no_service(probe: Probe, answer: TargetAnswer) -> str:
    kind = answer.headers.get("content-type", "no Content-Type")[:60]
    endpoint = probe.target.protected
    return (
        f"{endpoint.method} {endpoint.path} and POST {probe.target.pay.path} are answered "
        f"{answer.status} ({kind}), and not in JSON: no service of this specification; give the "
        f"base URL of one, or a target file with its paths ({_init()} URL writes one)"
    )


def _other_dialect(probe: Probe, answer: TargetAnswer) -> str | None:
    """Return the advice for a 402 of another dialect; None leaves the 402 to the checks."""
    places = probe.target.payment_required
    if isinstance(answer.at(places.payment_id), str) or isinstance(answer.requirements, dict):
        return None
    if not _is_of_x402(answer):
        return None
    endpoint = probe.target.protected
    if of_server := _of_server(answer, (endpoint.method, endpoint.path, probe.usual_body)):
        return f"{of_server}; a service of the specification needs a target file: {_init()} URL"
    return (
        f"the 402 has no payment id at {places.payment_id} and no requirements at "
        f"{places.requirements}, but `accepts`, as x402 does; a target file says where they are: "
        f"{_init()} URL"
    )


def _is_of_x402(answer: TargetAnswer) -> bool:
    in_body = isinstance(answer.body, dict) and "accepts" in answer.body
    return in_body or REQUIRED_HEADER in answer.headers


def _of_server(answer: TargetAnswer, sold: tuple[str, str, Any]) -> str:
    """Return how to judge a server that is paid in one step, without an id; else ""."""
    if not _is_of_x402(answer) or find(answer.body, lambda _, value: begins(value, "pay_")):
        return ""
    return f"its 402 names no payment id, as servers of the x402 standard do: {as_server(sold)}"


async def _is_closed(probe: Probe) -> bool:
    return (await probe.send("POST", probe.target.pay.path, json={})).status in (401, 403, 407)


async def _elsewhere(probe: Probe, answer: TargetAnswer, request: str) -> str:
    """Return the advice for a missing endpoint; the base URL itself may be an endpoint."""
    hint = f"give the base URL, or a target file with protected.path ({_init()} URL writes one)"
    for method in ("GET", "POST"):
        body: dict[str, str] | None = {} if method == "POST" else None
        path = "" if probe.setting.http.base_url.path != "/" else "/"
        itself = await probe.send(method, path, json=body, as_is=True)
        if itself.status == 402:
            sold = (method, probe.setting.http.base_url.path.rstrip("/") or "/", body)
            hint = _of_server(itself, sold) or (
                f"{method} of the URL itself answers 402: it is an endpoint, and not the base "
                f"URL; {_init()} {probe.setting.base_url} writes a target file"
            )
            break
    return f"{request} answers {answer.status}: no protected endpoint there; {hint}"


def _redirected(setting: Setting, answer: TargetAnswer, request: str) -> str | None:
    base = setting.http.base_url
    there = base.join(answer.headers.get("location", ""))
    if (there.scheme, there.host, there.port) == (base.scheme, base.host, base.port):
        return None
    to = f"{there.scheme}://{there.netloc.decode()}"
    return f"{request} redirects to {to}; give that URL"


# --- time and money ----------------------------------------------------------------------


def _require_same_time(setting: Setting, answer: TargetAnswer) -> None:
    """Raise `NotReady` if the target's clock is wrong; a clock that turns is never checked."""
    date = answer.headers.get("date")
    if date is None or setting.advance is not None:
        return
    try:
        ahead_s = parsedate_to_datetime(date).timestamp() - setting.clock.now()
    except (ValueError, OverflowError):
        return
    if abs(ahead_s) > CLOCKS_AGREE_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        raise NotReady(
            f"the clock of {setting.base_url} is {abs(ahead_s):.0f} s {way} this one (its header "
            "Date); authorizations are valid for minutes: set both clocks"
        )


async def _require_money(probe: Probe, challenge: Challenge, plan: Estimate) -> None:
    """Raise `NotReady` if the payer may not pay, cannot pay, or lacks the money."""
    setting, payer = probe.setting, probe.setting.options.payer
    assert payer is not None
    name = challenge.requirements.get("network")
    network = setting.options.networks.get(name) if isinstance(name, str) else None
    if network is not None and setting.is_real_money(network):
        raise NotReady(
            f"the 402 asks for real money, on {name}: give --allow-mainnet to pay up to "
            f"{to_decimal(plan.signs_base, 6)} tokens, or no --payer-key"
        )
    if network is None:
        raise NotReady(
            f"the 402 asks for the network {name!r}, on which nothing can be signed (known: "
            f"{', '.join(setting.options.networks)}); describe it in --network-file, or judge the "
            "service without --payer-key"
        )
    probe.wallets.network(challenge)
    if setting.rpc is None:
        return
    data = to_hex(abi.balance_of(payer.address_bytes))
    call = {"to": challenge.requirements["asset"], "data": data}
    try:
        balance_base = int(await probe.chain.call("eth_call", call, "latest"), 16)
    except (Inconclusive, TypeError, ValueError) as problem:
        raise NotReady(f"--rpc-url does not show the payer's balance: {problem}") from problem
    if balance_base < plan.signs_base:
        raise NotReady(
            f"the payer {payer.address} has {to_decimal(balance_base, 6)} of the token "
            f"{challenge.requirements['asset']} on {name}, and the plan signs for "
            f"{to_decimal(plan.signs_base, 6)}: fund it, or give a smaller --budget"
        )


# --- the first payment -----------------------------------------------------------------------


BAD_GATEWAY = (502, 503, 504)
_CUT_OFF = re.compile(
    r"facilitator|upstream|econn|enotfound|eai_again|getaddrinfo|fetch failed|timed? ?out"
    r"|connect(ion)? (error|refused|failed|attempt)|unreachable|no route",
    re.IGNORECASE,
)
"""Words in the 5xx of a service without access to its facilitator."""


async def pay_once(probe: Probe, challenge: Challenge) -> tuple[str, ...]:
    """Pay once, as the checks' control; return notes, and raise `NotReady`."""
    setting = probe.setting
    with_world = setting.control is not None and setting.advance is None
    payer = await probe.payer_of(challenge) if with_world else None
    if payer is not None:
        await probe.world.watch(payer)
    problem = await try_control(probe, "payment", payer)
    setting.first_controls["payment"] = problem
    if problem is not None and (unseen := _unseen_content(probe)):
        raise NotReady(f"{setting.base_url}: {unseen}")
    lacks_money = problem is not None and Refusal.INSUFFICIENT_BALANCE.text in problem
    is_cut_off = problem is not None and probe.last is not None and _is_cut_off(probe.last)
    if setting.control is None and lacks_money:
        who = setting.options.payer.address if setting.options.payer else "of --payer-key"
        raise NotReady(
            f"the payer {who} lacks money; {problem}; fund it, give another --payer-key, or --world"
            " URL: a world mints money for payers"
        )
    if setting.control is None and is_cut_off:
        raise NotReady(f"{setting.base_url}: {problem}; does its facilitator answer?")
    if payer is None or await probe.world.was_queried_about(payer):
        return ()
    assert setting.control is not None
    world = str(setting.control.http.base_url).rstrip("/").removesuffix("/_sim")
    unused = f"the world's facilitator was not asked about it ({world}/facilitator)"
    if is_cut_off or lacks_money:  # the world has funded the payer: the service uses another world
        raise NotReady(f"{unused}, and {problem}; set FACILITATOR_URL of the service to it")
    if problem:
        cause = (
            "the service has refused it by itself, or asks another facilitator (see "
            "FACILITATOR_URL)"
        )
        return (f"{problem}; {unused}: {cause}",)
    return (f"a payment was settled, but {unused}; set FACILITATOR_URL of the service to it",)


def _is_cut_off(answer: TargetAnswer) -> bool:
    is_broken = answer.broken != "" or answer.status in BAD_GATEWAY
    return is_broken or (answer.status >= 500 and _CUT_OFF.search(answer.text) is not None)


def _unseen_content(probe: Probe) -> str:
    """Return why a paid answer seems to lack its content, if the target file names a wrong place.

    The endpoint of the specification has its content where the specification says (4.2).
    """
    endpoint, answer = probe.target.protected, probe.last
    if endpoint.path == SPEC.protected.path or answer is None or not probe.setting.paid_ids:
        return ""
    if answer.status != 200 or answer.has_content or not answer.may_be_receipt:
        return ""
    request = f"the paid {endpoint.method} {endpoint.path} is answered {answer.summary}"
    wanted = f"nothing is at protected.content = {endpoint.content!r}"
    if not isinstance(answer.body, dict):
        return f"{request}, and {wanted}: only content that is a JSON object can be recognized"
    seen = [place for place, _ in walk(answer.body) if place.count("/") == 1 and place != "/"]
    places = " or ".join(seen)
    line = f' (write content = "{places}" below [protected])' if " or " not in places else ""
    there = f"set it to where the content is ({places}) in the target file{line}"
    return f"{request}, and {wanted}: {there}"
