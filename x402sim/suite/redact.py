"""Redacts exchanges: removes signatures, proofs of payment and keys.

A payment is shown with its fields as sent: same order, types and spelling. A curl command that
sends the whole request again stands beside a payment of a world's payer, who has only play money,
and beside a request without secrets. The command keeps every byte: a shell changes nothing in
single quotes, and bytes that are not printable ASCII are in `$'...'`, for bash, zsh and ksh.
"""

import base64
import json
import re
import string
from collections.abc import Collection
from typing import Any

import httpx
import msgspec

from x402sim.payer.wallet import Wallet
from x402sim.protocol.messages import decoded
from x402sim.protocol.x402 import PAYMENT_HEADERS, REQUIRED_HEADER, RESPONSE_HEADERS, json_in
from x402sim.suite.report.exchange import Exchange, Message
from x402sim.text.words import printable, printable_lines

_PROOF = re.compile(r"\b(pay_|session_)([\w-]{4})[\w-]+")
_ID = re.compile(r'("(?:paymentId|sessionId)" ?: ?")(?!pay_|session_)([^"\s]{4})[^"\s]{4,}(?=")')
"""An id without the prefixes of the specification, `pay_` and `session_`."""
_ANY_ID = re.compile(r'"(?:paymentId|sessionId)"\s*:\s*"([^"\s]{8,200})"')
_LEAST_ID = 8
_ID_HEADERS = ("x-payment-id", "x-session-id")
_SIGNED = re.compile(r"[0-9a-fA-F]{128,}|[A-Za-z0-9+/_=-]{200,}")
"""A signature (65 bytes) in hex, or a payment header in either spelling; a hash has 64 digits."""
_OWN = re.compile(r"\b(pay|session)_[\w-]+…?|0x[0-9a-fA-F]+…?|\d{4,}(\.\d+)?|: *\"[^\"]*\"")
"""The parts that differ from answer to answer: ids, hashes, numbers, texts."""
_HEADERS = ("content-type", "x-payment-id", "x-session-id", "retry-after", "location")
_SECRET_HEADERS = ("authorization", "cookie", "set-cookie", "x-payment")
_PAYMENT = PAYMENT_HEADERS[2].lower()
_STANDARD = (_PAYMENT, REQUIRED_HEADER.lower(), RESPONSE_HEADERS[2].lower())
"""The headers of version 2 of the x402 standard."""
_OF_ENVELOPE = ("x402Version", "scheme", "network", "payload")
"""The fields with the same value in every payment header."""
_LIMIT, _UNREADABLE = 1500, 300
"""The most characters of a body in an exchange, and of an unreadable payment."""


def exchange(
    request: httpx.Request,
    response: httpx.Response | None,
    broken: str = "",
    *,
    is_play: bool = False,
) -> Exchange:
    """Return a request and its answer without signatures and proofs of payment.

    With `is_play`, or for a request without secrets, a command sends the request again.
    """
    line = f"{request.method} {proofless(str(request.url))}"
    answer = Message(f"<no answer: {broken}>")
    if response is not None:
        status, headers = str(response.status_code), _headers(response.headers)
        answer = Message(status, headers, _body(response.content))
    return Exchange(
        request=Message(line, _headers(request.headers), _body(request.content)),
        answer=answer,
        again=as_curl(request) if is_play or not _has_secret(request) else "",
    )


def _has_secret(request: httpx.Request) -> bool:
    body = request.content.decode("utf-8", "replace")
    parts = [str(request.url), body, *request.headers.values()]
    shows = any(name in request.headers for name in (_PAYMENT, *_ID_HEADERS))
    return shows or any(redacted(each) != each for each in parts)


def without(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without the user's secrets: values of headers, passwords, keys of a node."""
    for secret in secrets:
        text = text.replace(secret, "<hidden>")
    return text


def cut(text: str, most: int, unread: int = 0) -> str:
    """Return the first `most` characters of a text, and the number of characters left out.

    `unread` more characters follow the text without being in it.
    """
    more = max(0, len(text) - most) + unread
    return f"{text[:most]}… ({more} more characters)" if more else text


def proofless(text: str) -> str:
    """Return a text with payment ids and session ids truncated."""
    return _ID.sub(r"\1\2…", _PROOF.sub(r"\1\2…", text))


def spellings(signature: bytes) -> set[str]:
    """Return the spellings of a signature in answers: its halves r and s in hex, the whole in
    base64."""
    halves = {signature[at : at + 32].hex() for at in (0, 32)}
    whole = {base64.b64encode(signature).decode(), base64.urlsafe_b64encode(signature).decode()}
    return halves | {each.rstrip("=") for each in whole}


def ids_in(text: str) -> set[str]:
    """Return the ids of payments and sessions in an answer: proofs of payment."""
    return set(_ANY_ID.findall(text))


def _beginning(proof: re.Match[str]) -> str:
    return f"{proof[0][:4]}…"


def shortened(text: str, proofs: Collection[str]) -> str:
    """Return a text in which each of the proofs of payment is cut to its first four characters."""
    for proof in proofs:
        if len(proof) >= _LEAST_ID:
            text = re.sub(re.escape(proof), _beginning, text, flags=re.IGNORECASE)
    return text


def redacted(text: str, payer: Wallet | None = None) -> str:
    """Return a text for a report: without proofs, signatures, payment headers and keys.

    The hidden key is the key of `payer`, the user's own wallet, if given.
    """
    if payer is not None:
        key = payer.private_key.removeprefix("0x")
        text = re.sub(key, "<key, hidden>", text, flags=re.IGNORECASE)
    return _SIGNED.sub(lambda found: f"<{len(found[0])} characters, hidden>", proofless(text))


def impersonal(text: str) -> str:
    """Return an answer without ids, hashes, times and JSON strings, to find similar answers."""
    return _OWN.sub("_", text)


def _headers(headers: httpx.Headers) -> tuple[str, ...]:
    shown = []
    for name, value in headers.items():
        if name in _HEADERS:
            short = proofless(value)
            if name in _ID_HEADERS and short == value and len(value) >= _LEAST_ID:
                short = f"{value[:4]}…"
            shown.append(f"{name}: {printable(short)}")
    shown += [f"{name}: {_standard_header(headers[name])}" for name in headers if name in _STANDARD]
    return (*shown, *(f"{name}: <hidden>" for name in headers if name in _SECRET_HEADERS))


def _standard_header(value: str) -> str:
    """Return a standard header's content without the parts that repeat the offer."""
    content = json_in(value)
    if not isinstance(content, dict):
        return printable(_unread(value))
    if "accepts" in content:
        return printable(cut(redacted(f"{content.get('error')}"), _LIMIT))
    fields = {name: content[name] for name in content if name not in ("x402Version", "resource")}
    if isinstance(accepted := fields.get("accepted"), dict):
        fields["accepted"] = {name: accepted[name] for name in accepted if name != "extra"}
    return printable(cut(redacted(json.dumps(fields, ensure_ascii=False)), _LIMIT))


def _body(content: bytes) -> str:
    body = decoded(content)
    if body is None:
        return printable_lines(cut(redacted(content.decode("utf-8", "replace")), _LIMIT))
    if isinstance(body, dict) and isinstance(body.get("paymentHeader"), str):
        body = {**body, "paymentHeader": _header(body["paymentHeader"])}
    return printable(cut(redacted(msgspec.json.encode(body).decode()), _LIMIT))


def _header(header: str) -> Any:
    """Return the fields of a payment header as sent, but for the signature.

    "sentAs" is the encoding, hex or base64; an unreadable header is returned as sent.
    """
    is_hex = header[:2] in ("0x", "0X")
    try:
        raw = bytes.fromhex(header[2:]) if is_hex else base64.b64decode(header + "==")
    except ValueError:
        return _unread(header)
    payment = decoded(raw)
    if not isinstance(payment, dict) or not isinstance(payment.get("payload"), dict):
        return _unread(header)
    others = {name: payment[name] for name in payment if name not in _OF_ENVELOPE}
    fields = {**payment["payload"], **others}
    if isinstance(
        signature := fields.get("signature"), str
    ):  # also a signature too short for `_SIGNED`
        fields["signature"] = f"<{len(signature)} characters, hidden>"
    return {**fields, "sentAs": "hex" if is_hex else "base64"}


def _unread(header: str) -> str:
    """Return an unreadable header as sent: redacted, and cut."""
    return cut(redacted(header), _UNREADABLE)


# --- requests as curl commands ---------------------------------------------------------------


MOST = 8000
"""The most characters of a command."""
_OF_CHECKS = (b"content-type", b"x-payment-id", b"x-session-id", b"payment-signature")
"""The headers the checks set."""
_OF_CLIENT = (
    *(b"host", b"accept", b"accept-encoding", b"connection", b"user-agent", b"content-length"),
    b"transfer-encoding",
)
"""The headers every client sets on its own."""
_PLAIN = frozenset((string.ascii_letters + string.digits + string.punctuation + " ").encode())


def as_curl(request: httpx.Request) -> str:
    """Return a curl command for a request; empty if the request is too long or has a NUL.

    The user's own headers are in the command without their values.
    """
    url = str(request.url)
    words = ["curl", "-i", *_method(request)]
    if (target := request.extensions.get("target")) is not None:
        url = str(request.url.copy_with(raw_path=b"/")).rstrip("/") + target.decode("latin-1")
        words.append("--path-as-is")
    words.append(quoted(url.encode("latin-1", "replace")))
    for name, value in request.headers.raw:
        if name.lower() in _OF_CHECKS:
            header = name + (b": " + value if value else b";")  # curl's spelling of an empty value
            words += ["-H", quoted(header)]
        elif name.lower() not in _OF_CLIENT:
            words += ["-H", quoted(name + b": <hidden>")]
    if request.content:
        words += ["--data-raw", quoted(request.content)]
    command = " ".join(words)
    return command if len(command) <= MOST and r"\x00" not in command else ""


def _method(request: httpx.Request) -> list[str]:
    if request.method == "HEAD":
        return ["-I"]
    return [] if request.method == "GET" and not request.content else ["-X", request.method]


def quoted(text: bytes) -> str:
    """Return a shell word for exactly these bytes; hides `::` and `##`, which act on a CI."""
    if _PLAIN.issuperset(text) and not any(part in text for part in (b"'", b"::", b"##")):
        return f"'{text.decode()}'"
    kept = _PLAIN - set(b"'\\:#")
    return "$'" + "".join(chr(c) if c in kept else f"\\x{c:02x}" for c in text) + "'"
