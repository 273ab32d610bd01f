"""The options of a judgement of a service, their flags, and how to read each from a text.

A secret (the key, a header's value, a password in a URL) is in no text made by `shows`.
"""

import base64
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from x402sim.http.bounded import Limits
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.money import to_base
from x402sim.protocol.networks import NETWORKS, TESTNET, Network, known_networks
from x402sim.spec.needs import Need
from x402sim.suite.options import above_zero, flag, wait_flag
from x402sim.suite.service.target import SPEC, Target
from x402sim.text.words import as_given, near_url, unknown

KEY_VARIABLE = "X402SIM_PAYER_KEY"
HIDDEN = "<hidden>"
REQUIRABLE = {
    "payments": Need.FUNDS,
    "chain": Need.OBSERVE_CHAIN,
    "world": Need.WORLD,
    "clock": Need.CLOCK,
    "restart": Need.RESTART,
    "expiry": Need.SESSIONS,
    "refunds": Need.WORLD,
}
"""The needs that --require can demand; `refunds` also demands that refunds are due. Only the end of
a run shows whether an expiry was seen."""
_PUBLIC = ("accept", "accept-language", "content-type", "user-agent", "host")
"""Headers whose values are no secrets."""
MOST_BYTES = 1 << 20
"""The largest body of one answer, after decoding."""
_SHORT = 4
"""A shorter value is no secret: hiding it would hide half of every report."""


# --- reading and showing values -------------------------------------------------------------


def clean_url(
    url: str | None, option: str, *, path_is_free: bool = False
) -> tuple[str | None, str | None]:
    """Return a URL without user and password, and both in base64; raises `ValueError`."""
    if url is None:
        return None, None
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{option}: expected a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        shown, near = as_given(url), near_url(url)
        if "@" in url:
            shown, near = "a URL with a user name", ""
        raise ValueError(f"expected a URL that starts with http:// or https://, got {shown}{near}")
    if (parsed.query or parsed.fragment) and not path_is_free:
        raise ValueError(
            f"{option}: expected a URL without ? and #; a key of a gateway goes into --header"
        )
    user = base64.b64encode(f"{parsed.username}:{parsed.password}".encode()).decode()
    return str(parsed.copy_with(userinfo=b"")), user if parsed.userinfo else None


def _without_user(option: str, url: str, *, path_is_free: bool = False) -> str:
    """Return a URL without a user name; raises `ValueError`."""
    cleaned, user = clean_url(url, option, path_is_free=path_is_free)
    if user:
        raise ValueError("--world and --rpc-url take no user name: give a URL without one")
    return str(cleaned)


def _header(text: str) -> tuple[str, str]:
    """Return the name and the value of --header; raises `ValueError` that shows no value."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not name or not value:
        raise ValueError("--header: expected NAME:VALUE, such as 'X-API-Key:…'")
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"--header: {as_given(name)} is no name of a header")
    if not value.isprintable() or not value.isascii():
        raise ValueError(f"--header {name}: the value has characters that no header can have")
    if name.lower() in ("x-payment-id", "x-session-id", "content-length"):
        raise ValueError(f"--header {name}: the suite sets this header itself")
    return name, value


def _headers(texts: Iterable[str]) -> dict[str, str]:
    return dict(map(_header, texts))


def _required(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of --require; raises `ValueError` for an unknown name."""
    found = [part.strip() for text in names for part in text.split(",") if part.strip()]
    for name in found:
        if name not in REQUIRABLE:
            raise ValueError(f"--require: {unknown('need', name, REQUIRABLE)}")
    return tuple(dict.fromkeys(found))


def _shown_key(text: str) -> str | None:
    """Return the key as a command shows it; None if the command reads the variable by itself."""
    return None if os.environ.get(KEY_VARIABLE) == text else f"${KEY_VARIABLE}"


def _shown_header(text: str) -> str:
    name, value = _header(text)
    return f"{name}:{value if name.lower() in _PUBLIC else HIDDEN}"


def _shown_node(url: str) -> str:
    shown = str(clean_url(url, "--rpc-url", path_is_free=True)[0])
    for key in _path_keys(shown):
        shown = shown.replace(key, HIDDEN)
    return shown


def secrets(headers: Mapping[str, str], rpc_url: str | None) -> tuple[str, ...]:
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
    """Return the keys in a node's URL: long segments of the path, and the query."""
    parsed = httpx.URL(url)
    long = [part for part in parsed.path.split("/") if len(part) >= 16]
    return [*long, parsed.query.decode()] if parsed.query else long


# --- the options ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A user's options: the target, and the means to judge it.

    A `patient` run waits minutes, too. `budget_base` limits the sum that the `payer` signs for;
    a world's minted money does not count. Without a seed, each run has new wallets and nonces,
    as a real chain needs.
    """

    base_url: str = ""
    given_url: str = ""
    """The URL as the user gave it, without a password; perhaps an endpoint's URL."""
    target: Target = flag(
        "How the service differs: a TOML file, or spec, x402sim or cronos-paywall.",
        metavar="NAME|FILE",
        default="spec",
        unset=SPEC,
    )
    payer: Wallet | None = flag(
        "Private key of a funded payer: 0x and 64 hex digits.",
        name="payer_key",
        metavar="HEX",
        variable=KEY_VARIABLE,
        read=Wallet,
        shows=_shown_key,
    )
    world_url: str | None = flag(
        "Control API of the world around the service.",
        name="world",
        metavar="URL",
        read=partial(_without_user, "--world"),
    )
    rpc_url: str | None = flag(
        "JSON-RPC node of the chain, to read transfers.",
        metavar="URL",
        read=partial(_without_user, "--rpc-url", path_is_free=True),
        shows=_shown_node,
    )
    pay_to: Address | None = flag(
        "Expected payTo address; the payer's key pays nobody else.",
        metavar="ADDRESS",
        read=parse_address,
    )
    budget_base: int = flag(
        "Most tokens that the payer may sign for; what does not fit is left out.",
        name="budget",
        metavar="AMOUNT",
        default="3.00",
        read=partial(to_base, decimals=TESTNET.decimals),
        unset=0,
    )
    allow_mainnet: bool = flag(
        "Allow payments with real money.", kind=bool, default=False, unset=False
    )
    networks: Mapping[str, Network] = flag(
        "TOML file with more networks, as for `serve`.",
        name="network_file",
        kind=Path,
        metavar="FILE",
        read=known_networks,
        factory=lambda: NETWORKS,
    )
    """The networks that can be paid on, by their names in a 402."""
    patient: bool = flag(
        "Play the checks that take minutes, too: about six in all.",
        kind=bool,
        default=False,
        unset=False,
    )
    restart: str | None = flag(
        "Shell command that restarts the service, and returns while it runs.",
        metavar="COMMAND",
    )
    """The command to end and start the target."""
    skip: Mapping[str, str] = flag(
        "Skip the ids with this prefix; the report has the reason. Repeatable.",
        metavar="ID=REASON",
        is_repeatable=True,
        is_repeated=False,
        factory=dict,
    )
    """The cases that the user leaves out, by their `name`, with the reasons."""
    require: tuple[str, ...] = flag(
        f"Exit 2 unless the run has these: {', '.join(REQUIRABLE)}.",
        metavar="NEEDS",
        is_repeatable=True,
        is_repeated=False,
        read=_required,
        unset=(),
    )
    """The needs without which the run does not begin: see `REQUIRABLE`."""
    seed: int | None = flag("Random seed of inputs and wallets, to repeat a run.", kind=int)
    headers: Mapping[str, str] = flag(
        "Send this header to the service; reports hide the value. Repeatable.",
        name="header",
        metavar="NAME:VALUE",
        is_repeatable=True,
        read=_headers,
        factory=dict,
        shows=_shown_header,
    )
    """Headers of every request to the target, and to nobody else."""
    wait: float | None = wait_flag("Seconds until the service, and the world, answer, at most.")
    timeout_s: float = flag(
        "Longest time for one whole answer.",
        name="timeout",
        kind=float,
        metavar="SECONDS",
        default=90.0,
        read=above_zero("seconds", "--timeout"),
        unset=90.0,
    )
    rate: float | None = flag(
        "Send at most N requests in a second.",
        kind=float,
        metavar="N",
        read=above_zero("requests in a second", "--rate"),
    )
    """The most requests in a second."""
    secrets: tuple[str, ...] = ()
    """Texts that no report shows, such as the values of the user's own headers."""
    rerun: str = ""
    """The command to repeat the run, without --only."""

    @property
    def shown(self) -> str:
        """The target's name in reports: its base URL."""
        return self.base_url

    @property
    def limits(self) -> Limits:
        """The limits of the target's answers; a settlement waits for a block."""
        return Limits(max_answer_bytes=MOST_BYTES, deadline_s=self.timeout_s)
