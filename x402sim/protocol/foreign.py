"""Tells what a 402 is that offers no payment we know: another protocol, or just a bill."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from x402sim.protocol.messages import decoded
from x402sim.protocol.ways import object_in
from x402sim.protocol.x402 import REQUIRED_HEADER

CHALLENGE = "www-authenticate"
_OURS = ("x402Version", "accepts", "paymentRequirements", "paymentId")
"""Fields of a body that means to offer a payment we know, well formed or not."""
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9-]*)(?=\s|$)(?!\s*=)")
_PARAMETER = re.compile(
    r'(?<![\w-])([A-Za-z][\w-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))', re.ASCII
)
MOST = 16_384
"""The characters of a challenge that are read: whoever sends it chooses how many there are."""
_PAYMENT = "the HTTP authentication scheme Payment (also called MPP)"
_LIGHTNING = "L402, which is paid over the Lightning network"
_PROTOCOLS = {"payment": _PAYMENT, "l402": _LIGHTNING, "lsat": _LIGHTNING}


@dataclass(frozen=True, slots=True)
class Foreign:
    """A 402 that is of another protocol, or of none."""

    name: str
    """What it is, for people."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What it says."""
    do: str = "Pay as its seller describes; x402 and our two steps cannot."


def foreign_in(headers: Mapping[str, str], body: bytes) -> Foreign | None:
    """Return what a 402 is that offers nothing of x402 or of our two steps; None if it does."""
    said = object_in(body)
    if headers.get(REQUIRED_HEADER) is not None or not set(said or ()).isdisjoint(_OURS):
        return None
    challenge = headers.get(CHALLENGE)
    if challenge is not None:
        return challenged(challenge)
    return _bill(said, body)


def challenged(challenge: str) -> Foreign:
    """Return what the value of WWW-Authenticate asks for."""
    challenge = challenge[:MOST]
    schemes = [each[1] for each in _SCHEME.finditer(_unquoted(challenge))]
    for scheme in schemes:
        if (name := _PROTOCOLS.get(scheme.lower())) is not None:
            facts = {"challenge": scheme, **_parameters(challenge)}
            return Foreign(name, facts, f"Use a client of {name.partition(',')[0]}.")
    name = f"a challenge of the scheme {schemes[0][:40]}" if schemes else "a challenge of no scheme"
    return Foreign(name, _parameters(challenge), "Authenticate as the seller describes.")


def _unquoted(challenge: str) -> str:
    """Return a challenge without its quoted texts, in which words look like schemes."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', challenge)


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


def _bill(said: Mapping[str, Any] | None, body: bytes) -> Foreign:
    """Return what a 402 without a challenge says: most are about a balance or a subscription."""
    text = body[:200].decode("utf-8", "replace").strip() if said is None else _message(said)
    name = "a bill without a way to pay: no x402, no challenge"
    do = "Settle it with the seller: a balance, a subscription or an invoice."
    return Foreign(name, {"says": text} if text else {}, do)


def _message(said: Mapping[str, Any]) -> str:
    """Return the words of an error, where the usual bodies have them."""
    for each in (said.get("error"), said.get("errors"), said):
        each = each[0] if isinstance(each, list) and each else each
        if isinstance(each, str) and each:
            return each[:400]
        for name in ("message", "detail", "title", "error_description", "description"):
            if isinstance(each, dict) and isinstance(each.get(name), str) and each[name]:
                return str(each[name])[:400]
    return ", ".join(map(str, list(said)[:8]))[:400]
