"""Reads the options of a run from texts: what the command's flags, or pytest's, were given.

A secret (the key, a header's value, a password in a URL) is in no text that this module returns
for a report.
"""

import base64
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import httpx

from x402sim.http.bounded import Limits
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.money import to_base
from x402sim.protocol.networks import TESTNET, known_networks
from x402sim.suite.command import find_target, skipped
from x402sim.suite.engine import all_checks
from x402sim.suite.flags import FLAGS, KEY_VARIABLE
from x402sim.suite.preflight import REQUIRABLE
from x402sim.suite.sending import tls
from x402sim.suite.setting import Options
from x402sim.suite.target import Target
from x402sim.text.suggest import near_url, unknown

HIDDEN = "<hidden>"
_PUBLIC = ("accept", "accept-language", "content-type", "user-agent", "host")
"""Headers whose values are no secrets."""
_SHORT = 4
"""A shorter value is no secret: hiding it would hide half of every report."""
_NUMBERS = {"rate": "requests in a second", "timeout": "seconds", "max_answer_bytes": "bytes"}
"""The options that are a number above 0, and of what."""
_DEFAULTS = {flag.name: flag.default for flag in FLAGS}
Value = TypeVar("Value")


def parse(base_url: str | None, **given: Any) -> Options:
    """Return what flags give, by their names (`FLAGS`); raises `ValueError` that names the flag."""
    values = _DEFAULTS | {name: each for name, each in given.items() if each is not None}
    assert values.keys() == _DEFAULTS.keys(), f"no such flag: {values.keys() - _DEFAULTS.keys()}"
    target, key = find_target(values["target"]), values["payer_key"]
    is_variable = key is not None and os.environ.get(KEY_VARIABLE) == key
    told, user = _clean(base_url, "URL")
    if told is None:
        raise ValueError("no service to judge: give its URL, such as http://127.0.0.1:4020")
    base_url = _base(told, target)
    headers = dict(_header(text) for text in values["header"] or ())
    headers |= {"Authorization": f"Basic {user}"} if user else {}
    world, world_user = _clean(values["world"], "--world")
    rpc_url, rpc_user = _clean(values["rpc_url"], "--rpc-url", path_is_free=True)
    if world_user or rpc_user:
        raise ValueError("--world and --rpc-url take no user name: give a URL without one")
    _check_numbers(values)
    options = Options(
        base_url=base_url,
        given_url=told,
        target=target,
        world_url=world,
        rpc_url=rpc_url,
        payer=_read(KEY_VARIABLE if is_variable else "--payer-key", key, Wallet),
        budget_base=_read("--budget", values["budget"], partial(to_base, decimals=TESTNET.decimals))
        or 0,
        pay_to=_read("--pay-to", values["pay_to"], parse_address),
        allow_mainnet=values["allow_mainnet"] or False,
        networks=known_networks(values["network_file"]),
        seed=values["seed"],
        patient=values["patient"] or False,
        restart=values["restart"],
        headers=headers,
        cacert=values["cacert"],
        insecure=values["insecure"] or False,
        rate=values["rate"],
        limits=Limits(max_answer_bytes=values["max_answer_bytes"], deadline_s=values["timeout"]),
        require=_required(values["require"] or ()),
        skip=skipped(all_checks(), values["skip"] or ()),
        secrets=_secrets(headers, rpc_url),
        rerun=_again(base_url, values, has_user=user is not None),
    )
    if options.cacert is not None:
        tls(options)  # raises, if it cannot be read
    return options


def _check_numbers(values: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a number that is not above 0, or not finite."""
    for name, what in _NUMBERS.items():
        value = values[name]
        if value is not None and not 0 < value < math.inf:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} is a number of {what} above 0, not {value}")


def _read(option: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
    """Return an option as `parse` reads it, None without it; raises `ValueError` that names it."""
    try:
        return parse(text) if text is not None else None
    except ValueError as wrong:
        raise ValueError(f"{option}: {wrong}") from None


def _again(base_url: str, values: Mapping[str, Any], *, has_user: bool) -> str:
    """Return the command that repeats the run, with every option that matters, and no secret."""
    words = ["python", "-m", "x402sim", "conformance", base_url]
    words += ["--header", f"Authorization:{HIDDEN}"] if has_user else []
    for flag in FLAGS:
        value = values[flag.name]
        if not flag.is_repeated or value is None or value == flag.default:
            continue
        for each in value if flag.is_repeatable else (value,):
            words += _words(flag.name, flag.option, each)
    return shlex.join(words).replace(f"'${KEY_VARIABLE}'", f'"${KEY_VARIABLE}"')


def _words(name: str, option: str, value: Any) -> Iterator[str]:
    """Yield the words of one option; a secret is hidden in them."""
    match name, value:
        case "payer_key", key if os.environ.get(KEY_VARIABLE) == key:
            return
        case _, False:
            return
        case _, True:
            yield option
            return
        case "payer_key", _:
            shown = f"${KEY_VARIABLE}"
        case "world", _:
            shown = str(_clean(value, option)[0])
        case "rpc_url", _:
            shown = str(_clean(value, option, path_is_free=True)[0])
            for key in _path_keys(shown):
                shown = shown.replace(key, HIDDEN)
        case "header", _:
            named, text = _header(value)
            shown = f"{named}:{text if named.lower() in _PUBLIC else HIDDEN}"
        case _, float():
            shown = f"{value:g}"
        case _:
            shown = str(value)
    yield from (option, shown)


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
        shown, near = repr(url), near_url(url)
        if "@" in url:
            shown, near = "a URL with a user name", ""
        raise ValueError(f"expected a URL that starts with http:// or https://, got {shown}{near}")
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
    for path in filter(None, known):
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


def _secrets(headers: Mapping[str, str], rpc_url: str | None) -> tuple[str, ...]:
    """Return the texts that no report shows, longest first."""
    found = set()
    for name, value in headers.items():
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


def _required(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of --require; raises `ValueError` for an unknown one."""
    found = [part.strip() for text in names for part in text.split(",") if part.strip()]
    for name in found:
        if name not in REQUIRABLE:
            raise ValueError(f"--require: {unknown('need', name, REQUIRABLE)}")
    return tuple(dict.fromkeys(found))
