"""Examines a service without a payment; `target init` makes a target file of the findings.

Each finding names its evidence; a key that only a payment would show is left as a comment.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx

from x402sim.protocol import mcp
from x402sim.protocol.money import base_in, to_base
from x402sim.protocol.x402 import REQUIRED_HEADER, json_in
from x402sim.suite.service.answers import TargetAnswer, begins, find, is_requirements, walk
from x402sim.suite.service.options import Options
from x402sim.suite.service.preflight import not_ready
from x402sim.suite.service.probe import BAD_BODY, Probe
from x402sim.suite.service.second import DOCUMENTS, SecondPath, find_second, path_of
from x402sim.suite.service.sending import client
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import NO_SECOND, SPEC, FoundKey, Looked, at
from x402sim.suite.subject import as_server
from x402sim.suite.verdict import Inconclusive, NotReady
from x402sim.text.words import printable
from x402sim.version import VERSION

SMALL = ("0.01", "0.02", "0.05", "0.10", "0.20", "0.50", "1.00", "2.00", "5.00", "10.00", "50.00")
"""Deposits to try, in tokens, the smallest first."""
DURATIONS = (SPEC.sessions.duration, 60, 1)
"""Durations to try, as seconds, minutes or hours: a service may accept only one."""
QUERIES = ("?limit=10", "?page=1", "?page=1&limit=10", "?offset=0&limit=10")
"""Queries to try for a list that requires one."""
_SESSION = re.compile(r"\bX-(?:\w{1,40}-){0,5}Session(?:-\w{1,40}){0,5}", re.IGNORECASE)
ABSENT = (404, 405, 410, 501)


@dataclass(frozen=True, slots=True)
class _Examined:
    """A 402, and the request before it."""

    method: str
    path: str
    sent: dict[str, Any]
    body: Any
    kind: str
    """The body's Content-Type."""
    offers: list[Any]
    """The offers in the header of version 2 of the x402 standard."""


async def look(options: Options) -> Looked:
    """Look at a service, given its base URL or an endpoint; raises `NotReady`."""
    async with client(options.given_url, options, options.headers) as http:
        probe = Probe(Setting(options=options, http=http))
        try:
            return await _looked(probe)
        except Inconclusive as problem:
            raise not_ready(probe.setting, problem) from problem


async def _looked(probe: Probe) -> Looked:
    base_url, examined = await _find_402(probe)
    prefix = httpx.URL(base_url).path.rstrip("/")
    at = httpx.URL(base_url).copy_with(path="/")

    async def below(method: str, path: str, body: Any = None) -> TargetAnswer:
        return await probe.send(method, str(at.join(prefix + path)), json=body)

    if await _is_of_standard(below, examined):
        second = await _second_path(below, examined)
        sold = [(examined.method, prefix + examined.path, examined.sent)]
        sold += [(second.method, prefix + second.path, second.body)] if second else []
        raise NotReady(
            f"{examined.method} {examined.path} is sold by a server of the x402 standard, as its "
            f"402 has no payment id: no target file is needed, and {as_server(*sold)}"
        )
    found = {
        "protected": _protected(examined, prefix),
        "payment_required": list(_required(examined)),
        "pay": await _pay(below, examined),
        "receipt": _receipt(),
        "sessions": await _sessions(below),
        "agents": await _agents(below),
    }
    found["second"] = await _second(below, examined)
    llms, path = await below("GET", SPEC.llms.path), SPEC.llms.path
    found["llms"] = [FoundKey("exists", llms.status == 200, _got(path, llms))]
    return Looked(base_url, found)


async def _find_402(probe: Probe) -> tuple[str, _Examined]:
    """Return the base URL and a 402: from the URL itself, or from the usual endpoint."""
    options = probe.setting.options
    url, parsed = options.given_url, httpx.URL(options.given_url)
    usual: list[tuple[str, dict[str, Any]]] = [("POST", body) for body in SPEC.protected.bodies]
    own = [("GET", {}), *usual, ("POST", {})]
    tried = []
    given, path = parsed.path.rstrip("/"), SPEC.protected.path
    above = given.removesuffix(path) if given.endswith(path) else ""
    places = [(given, own, str(parsed.copy_with(path=f"{above}/")).rstrip("/"))] if given else []
    places.append((given + SPEC.protected.path, usual, url.rstrip("/")))
    for where, attempts, base_url in places:
        for method, body in attempts:
            full = str(parsed.copy_with(path=where))
            answer = await probe.send(method, full, json=body if method == "POST" else None)
            if answer.status == 402:
                prefix = httpx.URL(base_url).path.rstrip("/")
                kind = printable(answer.headers.get("content-type", "")[:80]) or "no Content-Type"
                path = where.removeprefix(prefix)
                return base_url, _Examined(method, path, body, answer.body, kind, _offers(answer))
            tried.append(f"{method} {where} {answer.status}")
            last = answer
    if await _is_mcp(probe, url):
        server = as_server(("MCP", f"{given or '/'} TOOL", None))
        raise NotReady(f"{url} is a server of MCP, which sells tools: {server}")
    raise NotReady(
        f"no 402 found at {url} ({', '.join(dict.fromkeys(tried))}); {_instead(last, options)}"
    )


async def _is_mcp(probe: Probe, url: str) -> bool:
    hello = mcp.message(1, "initialize", mcp.hello("x402sim", VERSION))
    headers = {"Accept": mcp.ACCEPTED, "Content-Type": "application/json"}
    answer = await probe.send("POST", url, content=hello, headers=headers, may_break=True)
    return answer.status == 200 and '"serverInfo"' in answer.text


def _instead(answer: TargetAnswer, options: Options) -> str:
    there = printable(answer.headers.get("location", ""))
    if answer.status in (401, 403, 407):
        if options.headers:
            return "the credentials of the URL or of --header are refused"
        return "give --header NAME:VALUE with credentials"
    if 300 <= answer.status < 400 and there:
        return f"it redirects to {there}: give the URL there"
    return "give the URL of a protected endpoint"


# --- the 402 ---------------------------------------------------------------------------------


def _protected(examined: _Examined, prefix: str) -> list[FoundKey]:
    how = f"{examined.method} {examined.path} answered 402"
    wanted = _requirements(examined.body)[1] or {}
    found = [
        FoundKey("path", examined.path, how),
        FoundKey("method", examined.method, how),
        FoundKey("bodies", [examined.sent], "the body of that request; replace it by a usual one"),
    ]
    amount, resource = base_in(wanted.get("maxAmountRequired")), wanted.get("resource")
    if amount is not None:
        found.append(FoundKey("amount_base", amount, "the 402's maxAmountRequired"))
    if isinstance(resource, str) and resource not in (examined.path, prefix + examined.path):
        found.append(FoundKey("resource", resource, "the 402's resource; it is not the path"))
    guess = SPEC.protected.content if examined.path == SPEC.protected.path else "/response"
    found.append(FoundKey("content", guess, "only a payment shows the content", False))
    if examined.path != SPEC.protected.path:
        found.append(FoundKey("fields", {}, "no quote: nothing is known of its fields"))
    return found


def _required(examined: _Examined) -> Iterator[FoundKey]:
    """Yield the places of the 402's parts."""
    place, wanted = _requirements(examined.body)
    if wanted is None:
        raise NotReady(
            f"{examined.method} {examined.path} answers 402 ({examined.kind}), with no payment "
            "requirements: no object in it has payTo and maxAmountRequired; "
            "give the URL of a protected endpoint"
        )
    several = _several(examined.body, place)
    payment_id = _payment_id(examined.body)
    yield FoundKey("requirements", several or place, _said(place, "the object with payTo"))
    yield FoundKey("payment_id", payment_id, _said(payment_id, "the string pay_…"))
    if several:
        named = str(wanted.get("asset"))
        yield FoundKey("asset", named, "several are accepted; this is the first")
    own = _without(examined.body, place)
    text = at(own, "/error")
    error = "/error" if isinstance(text, str) else ""
    yield FoundKey("error", error, _said(error, "error"))
    if error and text != SPEC.payment_required.error_text:
        yield FoundKey("error_text", text, "the text at /error")
    network, amount = wanted.get("network"), str(wanted.get("maxAmountRequired"))
    again = find(own, lambda _, value: value == network and isinstance(value, str))
    yield FoundKey("network", again, _said(again, "the network once more"))
    message = find(own, lambda name, value: name == "message" and isinstance(value, str)) or find(
        own, lambda _, value: isinstance(value, str) and amount in value and value != amount
    )
    yield FoundKey("message", message, _said(message, "the message"))
    timeout_s = wanted.get("maxTimeoutSeconds")
    if type(timeout_s) is int:
        yield FoundKey("max_timeout_s", timeout_s, "the 402's maxTimeoutSeconds")
    if not wanted.get("description"):
        yield FoundKey("description", False, "the requirements of the 402 have none")


def _payment_id(body: Any) -> str:
    return find(body, lambda _, value: begins(value, "pay_"))


def _said(place: str, what: str) -> str:
    return f"{what} in the 402" if place else f"{what} is not in the 402"


def _requirements(body: Any) -> tuple[str, dict[str, Any] | None]:
    for place, value in walk(body):
        if is_requirements(value):
            return place, value
    return "", None


def _several(body: Any, place: str) -> str:
    """Return the place of a list with several requirements; empty without a list."""
    parent, _, number = place.rpartition("/")
    if number != "0":
        return ""
    listed = dict(walk(body)).get(parent)
    return parent if isinstance(listed, list) and len(listed) > 1 else ""


def _without(body: Any, place: str) -> Any:
    top = place.split("/")[1] if place else ""
    if not isinstance(body, dict):
        return body
    return {name: value for name, value in body.items() if name != top}


# --- a server of the standard ------------------------------------------------------------------


def _offers(answer: TargetAnswer) -> list[Any]:
    required = json_in(answer.headers.get(REQUIRED_HEADER))
    required = required if isinstance(required, dict) else {}
    resource, accepts = required.get("resource"), required.get("accepts")
    url = resource.get("url") if isinstance(resource, dict) else None
    offers = accepts if isinstance(accepts, list) else []
    return [{**each, "resource": url} for each in offers if isinstance(each, dict)]


async def _is_of_standard(ask: Callable[..., Any], examined: _Examined) -> bool:
    """Tell whether a 402 is paid in the request itself, and not by its id at another endpoint."""
    is_x402 = bool(examined.offers) or (
        isinstance(examined.body, dict) and "x402Version" in examined.body
    )
    if not is_x402 or _payment_id(examined.body):
        return False
    if examined.offers and _requirements(examined.body)[1] is None:
        return True
    return (await ask("POST", SPEC.pay.path, {})).status in ABSENT


# --- the other endpoints -----------------------------------------------------------------------


async def _pay(ask: Callable[..., Any], examined: _Examined) -> list[FoundKey]:
    path = SPEC.pay.path
    status = (await ask("POST", path, {})).status
    is_there = status not in ABSENT
    how = f"POST with an empty object answered {status}"
    is_x402 = isinstance(examined.body, dict) and "x402Version" in examined.body
    return [
        FoundKey("path", path, how if is_there else f"{how}: set it", is_there),
        FoundKey(
            "spelling",
            "base64" if is_x402 else "hex",
            "the 402 has x402Version" if is_x402 else "the specification's; not tried",
            is_x402,
        ),
    ]


def _receipt() -> list[FoundKey]:
    how = "only a payment shows it"
    names = ("success", "payment_id", "tx_hash", "timestamp")
    return [FoundKey(name, getattr(SPEC.receipt, name), how, False) for name in names]


async def _sessions(ask: Callable[..., Any]) -> list[FoundKey]:
    path, smallest = SPEC.sessions.path, SPEC.sessions.smallest
    for duration, smallest in product(DURATIONS, SMALL):
        answer = await ask("POST", path, {"maxSpend": smallest, "duration": duration})
        if answer.status == 402:
            _, wanted = _requirements(answer.body)
            amount = (wanted or {}).get("maxAmountRequired")
            exact = "" if amount == str(to_base(smallest, 6)) else f", for {printable(str(amount))}"
            return [
                FoundKey("exists", True, f"POST {path} answered 402{exact}"),
                FoundKey("path", path, "the specification's"),
                FoundKey("duration", duration, "it was accepted"),
                FoundKey("smallest", smallest, "the smallest deposit that got a 402"),
                FoundKey("claim", SPEC.sessions.claim, "only a paid deposit shows it", False),
                *await _session_header(ask),
            ]
        if answer.status in ABSENT:
            break
    how = f"POST {path} answered {answer.status}"
    if answer.status not in ABSENT:
        how = (
            f"{how} to every deposit up to {smallest}: set a deposit and a duration that it accepts"
        )
        return [FoundKey("path", path, how), FoundKey("smallest", smallest, how, False)]
    return [FoundKey("exists", False, how)]


async def _session_header(ask: Callable[..., Any]) -> list[FoundKey]:
    for path in (SPEC.llms.path, *DOCUMENTS):
        named = {each.lower(): each for each in _SESSION.findall((await ask("GET", path)).text)}
        if len(named) == 1:
            return [FoundKey("header", next(iter(named.values())), f"{path} names it")]
    return []


async def _second(ask: Callable[..., Any], examined: _Examined) -> list[FoundKey]:
    found = await _second_path(ask, examined)
    if found is None:
        return [FoundKey("path", "", NO_SECOND, False)]
    how = f"{found.method} {found.path} answered 402 for itself, too"
    method = [FoundKey("method", found.method, how)] if found.method != "GET" else []
    return [FoundKey("path", found.path, how), *method]


async def _second_path(ask: Callable[..., Any], examined: _Examined) -> SecondPath | None:
    def asks_for(answer: TargetAnswer) -> str | None:
        wanted = _requirements(answer.body)[1] or next(iter(_offers(answer)), None)
        return path_of(wanted) if answer.status == 402 and wanted else None

    known = (examined.path, SPEC.sessions.path, SPEC.pay.path)
    body = examined.sent or SPEC.protected.bodies[0]
    return await find_second(ask, asks_for, known, SPEC.llms.path, body)


async def _agents(ask: Callable[..., Any]) -> list[FoundKey]:
    path = SPEC.agents.path
    answer = await ask("GET", path)
    found = [FoundKey("exists", answer.status not in ABSENT, _got(path, answer))]
    for query in QUERIES if answer.status in BAD_BODY else ():
        listed = await ask("GET", path + query)
        if listed.status == 200:
            how = f"{_got(path, answer)}, and with this query 200"
            found.append(FoundKey("path", path + query, how))
            answer = listed
            break
    place = find(answer.body, lambda _, value: isinstance(value, list))
    if answer.status == 200 and place:
        found.append(FoundKey("list", place, "the first list in the answer"))
    return found


def _got(path: str, answer: TargetAnswer) -> str:
    return f"GET {path} answered {answer.status}"
