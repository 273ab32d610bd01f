"""What has the user asked for? The options of `conformance` as text, and what they mean.

The command and the pytest plugin have the same options. A secret (the key, a header's value, a
password in a URL) is in no text that this module returns for a report.
"""

import base64
import math
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from x402sim.http.bounded import Limits
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.money import to_base
from x402sim.protocol.network_file import known_networks
from x402sim.protocol.networks import TESTNET
from x402sim.suite.command import find_target
from x402sim.suite.preflight import REQUIRABLE
from x402sim.suite.remote import Access
from x402sim.suite.target import Target
from x402sim.suite.wire import Wire, tls
from x402sim.text.suggest import unknown

KEY_VARIABLE = "X402SIM_PAYER_KEY"
BUDGET = "2.00"
"""The default of --budget: enough for every check at the specification's price."""
TIMEOUT_S = 90.0
HIDDEN = "<hidden>"
_PUBLIC = ("accept", "accept-language", "content-type", "user-agent", "host")
"""Headers whose values are no secrets."""
_SHORT = 4
"""A shorter value is no secret: hiding it would hide half of every report."""


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options as they were given; None and empty if they were not."""

    base_url: str | None = None
    target: str = "spec"
    payer_key: str | None = None
    world: str | None = None
    rpc_url: str | None = None
    pay_to: str | None = None
    budget: str | None = None
    allow_mainnet: bool = False
    network_file: Path | None = None
    strict: bool = False
    patient: bool = False
    restart: str | None = None
    seed: int | None = None
    header: tuple[str, ...] = ()
    cacert: Path | None = None
    insecure: bool = False
    timeout: float = TIMEOUT_S
    """In seconds."""
    rate: float | None = None
    max_answer_bytes: int = Limits().max_answer_bytes
    require: tuple[str, ...] = ()


def access(options: Options) -> Access:
    """Return what the options give; raises `ValueError` that names the option."""
    target = find_target(options.target)
    told, user = _clean(options.base_url, "URL")
    if told is None:
        raise ValueError("no service to judge: give its URL, such as http://127.0.0.1:4020")
    base_url = _base(told, target)
    headers = [_header(text) for text in options.header]
    headers += [("Authorization", f"Basic {user}")] if user else []
    world, world_user = _clean(options.world, "--world")
    rpc_url, rpc_user = _clean(options.rpc_url, "--rpc-url", path_is_free=True)
    if world_user or rpc_user:
        raise ValueError("--world and --rpc-url take no user name: give a URL without one")
    if options.rate is not None and not options.rate > 0:
        raise ValueError(f"--rate is a number of requests in a second, not {options.rate:g}")
    if not (math.isfinite(options.timeout) and options.timeout > 0):
        raise ValueError(f"--timeout is a number of seconds above 0, not {options.timeout:g}")
    if options.max_answer_bytes <= 0:
        least = "--max-answer-bytes is a number of bytes above 0"
        raise ValueError(f"{least}, not {options.max_answer_bytes}")
    wire = Wire(
        headers=tuple(headers),
        cacert=options.cacert,
        insecure=options.insecure,
        rate=options.rate,
        limits=Limits(max_answer_bytes=options.max_answer_bytes, deadline_s=options.timeout),
    )
    if wire.cacert is not None:
        tls(wire)
    return Access(
        base_url=base_url,
        given_url=told,
        target=target,
        world_url=world,
        rpc_url=rpc_url,
        payer=_read("--payer-key", options.payer_key, Wallet),
        budget_base=_read("--budget", options.budget or BUDGET, _base_units) or 0,
        pay_to=_read("--pay-to", options.pay_to, parse_address),
        allow_mainnet=options.allow_mainnet,
        networks=known_networks(options.network_file),
        seed=options.seed,
        patient=options.patient,
        restart=options.restart,
        wire=wire,
        require=_required(options.require),
        secrets=_secrets(headers, rpc_url),
        rerun=again(options, base_url),
        note="" if base_url == told else f"{told} is an endpoint; judging {base_url}",
    )


def _read(option: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
    """Return an option as `parse` reads it, None without it; raises `ValueError` that names it."""
    try:
        return parse(text) if text is not None else None
    except ValueError as wrong:
        raise ValueError(f"{option}: {wrong}") from None


def _base_units(amount: str) -> int:
    return to_base(amount, TESTNET.decimals)


def again(options: Options, base_url: str) -> str:
    """Return the command that repeats the run, with every option that matters, and no secret."""
    rpc_url, _ = _clean(options.rpc_url, "--rpc-url", path_is_free=True)
    world, _ = _clean(options.world, "--world")
    key = options.payer_key
    is_in_environment = key is not None and os.environ.get(KEY_VARIABLE) == key
    given: dict[str, Any] = {
        "--target": options.target if options.target != "spec" else None,
        "--payer-key": f"${KEY_VARIABLE}" if key is not None and not is_in_environment else None,
        "--world": world,
        "--rpc-url": rpc_url if rpc_url is None else _without_path_keys(rpc_url),
        "--pay-to": options.pay_to,
        "--budget": options.budget,
        "--allow-mainnet": options.allow_mainnet,
        "--network-file": options.network_file,
        "--strict": options.strict,
        "--patient": options.patient,
        "--restart": options.restart,
        "--seed": options.seed,
        "--header": [_shown(text) for text in options.header],
        "--cacert": options.cacert,
        "--insecure": options.insecure,
        "--timeout": f"{options.timeout:g}" if options.timeout != TIMEOUT_S else None,
        "--rate": f"{options.rate:g}" if options.rate is not None else None,
        "--max-answer-bytes": options.max_answer_bytes
        if options.max_answer_bytes != Limits().max_answer_bytes
        else None,
    }
    words = ["python", "-m", "x402sim", "conformance", base_url]
    if options.base_url is not None and _clean(options.base_url, "URL")[1]:
        words += ["--header", f"Authorization:{HIDDEN}"]
    for name, value in given.items():
        match value:
            case None | False:
                continue
            case True:
                words.append(name)
            case [*several]:
                words += [word for each in several for word in (name, each)]
            case _:
                words += [name, str(value)]
    return shlex.join(words).replace(f"'${KEY_VARIABLE}'", f'"${KEY_VARIABLE}"')


def _clean(
    url: str | None, option: str, *, path_is_free: bool = False
) -> tuple[str | None, str | None]:
    """Return a URL without its user and password, and these in base64; raises `ValueError`."""
    if url is None:
        return None, None
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{option}: expected a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        shown = "a URL with a user name" if "@" in url else repr(url)
        raise ValueError(f"expected a URL that starts with http:// or https://, got {shown}")
    if (parsed.query or parsed.fragment) and not path_is_free:
        raise ValueError(
            f"{option}: expected a URL without ? and #; a key of a gateway goes into --header"
        )
    user = base64.b64encode(f"{parsed.username}:{parsed.password}".encode()).decode()
    return str(parsed.copy_with(userinfo=b"")), user if parsed.userinfo else None


def _base(url: str, target: Target) -> str:
    """Return the base URL, given it or the URL of an endpoint of the target."""
    known = [target.protected.path, target.pay.path]
    known += [target.sessions.path] if target.sessions.exists else []
    for path in known:
        if url.rstrip("/").endswith(path):
            return url.rstrip("/").removesuffix(path)
    return url


def _header(text: str) -> tuple[str, str]:
    """Return the name and the value of --header; raises `ValueError` that shows no value."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name or not value:
        raise ValueError("--header: expected NAME:VALUE, such as 'X-API-Key:…'")
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"--header: {name!r} is no name of a header")
    if not value.isprintable() or not value.isascii():
        raise ValueError(f"--header {name}: the value has characters that no header can have")
    if name.lower() in ("x-payment-id", "x-session-id", "content-length"):
        raise ValueError(f"--header {name}: the suite sets this header itself")
    return name, value


def _shown(text: str) -> str:
    name, value = _header(text)
    return f"{name}:{value if name.lower() in _PUBLIC else HIDDEN}"


def _secrets(headers: list[tuple[str, str]], rpc_url: str | None) -> tuple[str, ...]:
    """Return the texts that no report shows, longest first."""
    found = set()
    for name, value in headers:
        if name.lower() in _PUBLIC:
            continue
        last = value.rsplit(" ", 1)[-1]
        found |= {value, last}
        if value.startswith("Basic "):
            found |= _user_and_password(last)
    if rpc_url is not None:
        found |= set(_path_keys(rpc_url))
    return tuple(sorted((each for each in found if len(each) >= _SHORT), key=len, reverse=True))


def _user_and_password(encoded: str) -> set[str]:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return set()
    return {text, text.partition(":")[2]}


def _path_keys(url: str) -> list[str]:
    """Return the parts of a node's URL that are keys: long segments, and its query."""
    parsed = httpx.URL(url)
    long = [part for part in parsed.path.split("/") if len(part) >= 16]
    return [*long, parsed.query.decode()] if parsed.query else long


def _without_path_keys(url: str) -> str:
    for key in _path_keys(url):
        url = url.replace(key, HIDDEN)
    return url


def _required(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of --require; raises `ValueError` for an unknown one."""
    found = [part.strip() for text in names for part in text.split(",") if part.strip()]
    for name in found:
        if name not in REQUIRABLE:
            raise ValueError(f"--require: {unknown('need', name, REQUIRABLE)}")
    return tuple(dict.fromkeys(found))
