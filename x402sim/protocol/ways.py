"""Reads the offers of a 402 without refusing anything: each way to pay, with the fields as sent.

A payer refuses an unreadable offer; an explanation shows every offer. A 402 without a known payment
is `Foreign`: another protocol, or just a bill.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from x402sim.protocol.crypto import parse_address
from x402sim.protocol.messages import decoded, fields_of
from x402sim.protocol.networks import Network
from x402sim.protocol.x402 import REQUIRED_HEADER, Version, json_in, network_name

MOST_WAYS, MOST_DIGITS = 100, 20
"""The most ways to pay that are looked at, and more digits than a chain id has."""


class Dialect(Enum):
    """How a payment is sent; the value is its name for people."""

    TWO_STEPS = "two steps"
    """POST /api/pay, then the request with X-Payment-Id: our specification, and Cronos'."""
    V1 = "x402 version 1"
    V2 = "x402 version 2"

    @property
    def version(self) -> Version | None:
        """The version of the x402 standard; None in two steps."""
        return None if self is Dialect.TWO_STEPS else 1 if self is Dialect.V1 else 2

    def name_of(self, network: Network) -> str:
        """Return the dialect's name of a network."""
        return network_name(self.version or 1, network)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to pay: the requirements' fields, not checked, and the resource."""

    dialect: Dialect
    fields: Mapping[str, Any]
    resource: Any = None
    """A path in two steps, else a URL; None if there is none."""
    payment_id: Any = None
    """In two steps only."""

    @property
    def is_paywall(self) -> bool:
        """Whether it is paid in two steps, but offered as the public Cronos paywall does: in
        `accepts`, with the payment id in `extra` and without the token's domain.
        """
        return self.dialect is Dialect.TWO_STEPS and "paymentId" in self.extra

    @property
    def amount_name(self) -> str:
        """The name of the amount on the wire."""
        return "amount" if self.dialect is Dialect.V2 else "maxAmountRequired"

    @property
    def amount(self) -> Any:
        """The amount as it was sent: base units as a string, if all is well."""
        return self.fields.get(self.amount_name)

    @property
    def extra(self) -> Mapping[str, Any]:
        """The `extra` of the requirements; empty if there is none."""
        return fields_of(self.fields.get("extra"))

    def network(self, known: Mapping[str, Network]) -> Network | None:
        """Return the known network, by either of two names."""
        return network_called(self.fields.get("network"), known)

    def own_network(self) -> Network | None:
        """Return the network described by the requirements, with the token's domain in `extra`.

        None for an incomplete description. The symbol and the decimals are guesses.
        """
        name, extra = self.fields.get("network"), self.extra
        family, _, number = str(name).partition(":")
        is_chain = family == "eip155" and number.isdecimal() and len(number) < MOST_DIGITS
        chain_id = int(number) if is_chain else 0
        texts = (name, self.fields.get("asset"), extra.get("name"), extra.get("version"))
        if not all(isinstance(text, str) for text in texts):
            return None
        try:
            asset = parse_address(self.fields["asset"])
        except ValueError:
            return None
        return Network(str(name), chain_id, asset, extra["name"], "tokens", extra["version"])


def network_called(name: Any, known: Mapping[str, Network]) -> Network | None:
    """Return the network with this name of version 1 ("base-sepolia") or 2 ("eip155:84532")."""
    return next(
        (network for network in known.values() if name in (network.name, network.caip2)), None
    )


def object_in(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body; None for another body."""
    fields: dict[str, Any] | None = decoded(body, dict[str, Any])
    return fields


def ways_in(headers: Mapping[str, str], body: bytes) -> list[Way]:
    """Return all ways to pay in a 402, in the body or the header PAYMENT-REQUIRED."""
    found = list(ways_of(object_in(body) or {}))
    in_header = ways_of(json_in(headers.get(REQUIRED_HEADER), dict[str, Any]) or {})
    return found + [way for way in in_header if way not in found]


def ways_of(fields: Mapping[str, Any]) -> Iterator[Way]:
    """Yield the ways to pay in one JSON object: a 402's, or requirements by themselves."""
    wanted, listed = fields.get("paymentRequirements"), fields.get("accepts")
    if isinstance(wanted, dict):
        yield Way(Dialect.TWO_STEPS, wanted, wanted.get("resource"), fields.get("paymentId"))
    about = fields.get("resource")
    for each in listed[:MOST_WAYS] if isinstance(listed, list) else ():
        if not isinstance(each, dict):
            continue
        if fields.get("x402Version") == 2:
            yield Way(Dialect.V2, each, about.get("url") if isinstance(about, dict) else about)
            continue
        way = Way(Dialect.V1, each, each.get("resource"))
        is_paywall = "paymentId" in way.extra and not way.extra.keys() & {"name", "version"}
        yield replace(way, dialect=Dialect.TWO_STEPS) if is_paywall else way
    if "payTo" in fields:
        yield Way(dialect_of(fields), fields, about)


def dialect_of(requirements: Mapping[str, Any]) -> Dialect:
    """Return the dialect of bare requirements."""
    if "maxAmountRequired" not in requirements:
        return Dialect.V2
    is_path = str(requirements.get("resource", "")).startswith("/")
    return Dialect.TWO_STEPS if is_path and "extra" not in requirements else Dialect.V1


CHALLENGE = "www-authenticate"
_OURS = ("x402Version", "accepts", "paymentRequirements", "paymentId")
"""Fields of a body that means to offer a payment we know, well formed or not."""
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9-]*)(?=\s|$)(?!\s*=)")
_QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+"?')  # never tried again from a later letter
_PARAMETER = re.compile(
    r'(?<![\w-])([A-Za-z][\w-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))', re.ASCII
)
MOST = 16_384
"""The most characters read of a challenge; the sender chooses the length."""
_PAYMENT = "the HTTP authentication scheme Payment (also called MPP)"
_LIGHTNING = "L402, which is paid over the Lightning network"
_PROTOCOLS = {"payment": _PAYMENT, "l402": _LIGHTNING, "lsat": _LIGHTNING}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A 402 of another protocol, or of none."""

    name: str
    """The kind, for people."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """The content."""
    do: str = "Pay as its seller describes; x402 and our two steps cannot."
    is_required: bool = True
    """Whether the header asks for a payment; else the header is a payment or a receipt."""


def foreign_in(headers: Mapping[str, str], body: bytes) -> Foreign | None:
    """Return the kind of a 402 without an offer of x402 or of our two steps, else None."""
    fields = object_in(body)
    if headers.get(REQUIRED_HEADER) is not None or not set(fields or ()).isdisjoint(_OURS):
        return None
    challenge = headers.get(CHALLENGE)
    if challenge is not None:
        return challenged(challenge)
    # without a challenge it is a bill: most are about a balance or a subscription
    text = body[:200].decode("utf-8", "replace").strip() if fields is None else message_in(fields)
    if (name := page_of(body.decode("utf-8", "replace"))) != "":
        return Foreign(name, {}, f"It offers nothing in a header, either: {ASK_FOR_JSON}.")
    name = "a bill without a way to pay: no x402, no challenge"
    do = "Settle it with the seller: a balance, a subscription or an invoice."
    return Foreign(name, {"says": text} if text else {}, do)


PAYWALL = "window.x402"
"""The variable with the offer in the x402 SDKs' page for browsers."""
ASK_FOR_JSON = (
    "ask for JSON, with the header Accept: application/json "
    "(doctor and pay: -H 'Accept: application/json')"
)


def page_of(text: str) -> str:
    """Return the kind of an HTML page, in words; "" for other texts."""
    start = text.lstrip()[:200].lower()
    if not start.startswith(("<!doctype html", "<html", "<head", "<!--")):
        return ""
    if PAYWALL in text:
        return "the page that the x402 SDK sends to browsers (its paywall)"
    return "a page of HTML for browsers: a bill, or a paywall"


AUTHORIZATION = "authorization"
_CREDENTIAL = re.compile(r"(?:payment|l402|lsat)\s+\S", re.I)


def foreign_header(name: str, value: str) -> Foreign | None:
    """Return the content of another protocol's header, named or not; None for other texts."""
    name = name.lower()
    if name == CHALLENGE:
        return challenged(value)
    if name in ("", AUTHORIZATION) and _CREDENTIAL.match(value):
        scheme, _, text = value.partition(" ")
        protocol = _PROTOCOLS[scheme.lower()]
        return Foreign(f"a payment by {protocol}", _facts(text.strip()), is_required=False)
    if name == "payment-receipt":
        return Foreign(f"a receipt of {_PAYMENT}", _facts(value), is_required=False)
    return None


def _facts(text: str) -> dict[str, str]:
    """Return the content of a credential or a receipt: base64url of JSON, or parameters."""
    body = _json_text(text)
    fields = None if body is None else decoded(body.encode(), dict[str, Any])
    found = _parameters(text[:MOST]) if fields is None else fields
    return {name: str(value)[:400] for name, value in list(found.items())[:12]}


def challenged(challenge: str) -> Foreign:
    """Return which payment the value of WWW-Authenticate requires."""
    challenge = challenge[:MOST]
    unquoted = _QUOTED.sub('""', challenge)  # words in quotes look like schemes
    schemes = [match[1] for match in _SCHEME.finditer(unquoted)]
    for scheme in schemes:
        if (name := _PROTOCOLS.get(scheme.lower())) is not None:
            facts = {"challenge": scheme, **_parameters(challenge)}
            return Foreign(name, facts, f"Use a client of {name.partition(',')[0]}.")
    name = f"a challenge of the scheme {schemes[0][:40]}" if schemes else "a challenge of no scheme"
    return Foreign(name, _parameters(challenge), "Authenticate as the seller describes.")


def _parameters(challenge: str) -> dict[str, str]:
    """Return the parameters of a challenge; `request` of Payment is base64url of JSON."""
    found = {name: quoted or plain for name, quoted, plain in _PARAMETER.findall(challenge)}
    request = found.get("request")
    if request is not None and (text := _json_text(request)) is not None:
        found["request"] = text
    return {name: value[:400] for name, value in list(found.items())[:12]}


def _json_text(text: str) -> str | None:
    try:
        body = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return None if decoded(body, dict[str, Any]) is None else body.decode("utf-8", "replace")


_MORE_WORDS = ("errorReason", "invalidReason", "error_description", "description", "details")


def message_in(fields: Mapping[str, Any]) -> str:
    """Return the words of an error, where the usual bodies have them."""
    for each in (fields.get("error"), fields.get("errors"), fields):
        each = each[0] if isinstance(each, list) and each else each
        if isinstance(each, str) and each:
            return each[:400]
        for name in ("message", "errorMessage", "detail", "title", "errorType", *_MORE_WORDS):
            if isinstance(each, dict) and isinstance(each.get(name), str) and each[name]:
                return str(each[name])[:400]
    return ", ".join(map(str, list(fields)[:8]))[:400]
