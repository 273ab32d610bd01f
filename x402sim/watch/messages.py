"""Reads the payment in an exchange: offer, payment, receipt and defects; hides secrets.

A call of a paid tool over MCP is translated to HTTP first (`protocol.mcp`).

A recording of real money leaves out whatever could be spent, or shown as proof of payment.
Signatures keep their first characters only; payloads of unknown schemes are dropped; payment ids
and session ids become digests, equal in every message, so that a payment's messages still join.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from x402sim.events import Part
from x402sim.payer.diagnosis import examine
from x402sim.protocol import mcp
from x402sim.protocol.explain import explain
from x402sim.protocol.findings import Finding, of_settlement, of_terms
from x402sim.protocol.header import SignedPayment, json_of_header
from x402sim.protocol.messages import BadMessage, decoded, encode
from x402sim.protocol.money import base_in
from x402sim.protocol.networks import NETWORKS, TEST_CHAIN_IDS, Network, chain_id_of
from x402sim.protocol.permit2_payments import UPTO
from x402sim.protocol.recognize import recognize, recognized
from x402sim.protocol.ways import Way, network_called, ways_in
from x402sim.protocol.x402 import (
    OF_PAYMENTS,
    PAYMENT_HEADERS,
    REQUIRED_HEADER,
    RESPONSE_HEADERS,
    json_in,
    to_base64,
)
from x402sim.protocol.x402_reasons import WORDS, Meaning, meaning_of
from x402sim.watch.proxy import Exchange, Kept, RawHeaders

IDS = frozenset({"x-payment-id", "x-session-id"})
_MESSAGES = frozenset(name.decode() for name in OF_PAYMENTS) - IDS
_SIGNED_IN = re.compile("sign-in-with-x|(proxy-)?authorization|(set-)?cookie|.*(api-?key|secret).*")
_ID_FIELDS = frozenset({"paymentId", "sessionId", "payment_id", "session_id"})
_PLAIN = frozenset({"authorization", "signature"})
"""Fields of a payload of the scheme "exact"; any part of another payload might be spendable."""
HIDDEN = "***"
_DEEPEST = 40


def digest(proof: str) -> str:
    """Return a digest that replaces a proof of payment, with the prefix of its kind."""
    kind = proof[: proof.find("_") + 1] if proof.find("_") in range(1, 12) else ""
    return f"{kind}{hashlib.sha256(proof.encode()).hexdigest()[:12]}"


def hidden_headers(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """Return headers with nothing spendable: proofs become digests, credentials `***`."""
    return [(name, _header(name.decode("latin-1").lower(), value)) for name, value in headers]


def _header(name: str, value: bytes) -> bytes:
    if name in IDS:
        return digest(value.decode("latin-1")).encode()
    if _SIGNED_IN.fullmatch(name):
        return HIDDEN.encode()
    if name not in _MESSAGES:
        return value
    return hidden_message(value.decode("latin-1")).encode()


def without_secrets(found: "Messages", text: bytes) -> bytes:
    """Return a text without the payment's header and signature, which an answer may repeat, and
    with digests of ids.
    """
    secrets = [found.payment.encode("latin-1", "replace")] if found.payment else []
    if found.signed is not None:
        secrets.append(found.signed.signature.hex().encode())
    for secret in filter(None, secrets):
        text = re.sub(re.escape(secret), HIDDEN.encode(), text, flags=re.IGNORECASE)
    return _ID.sub(_digested, text)


def _digested(id_: re.Match[bytes]) -> bytes:
    """Return a digest of an id; a name in words, in lower case without a digit, stays."""
    return digest(id_[0].decode()).encode() if re.search(rb"[\dA-Z]", id_[0]) else id_[0]


def hidden_text(found: "Messages", text: str) -> str:
    """Return a path, a query or an error, perhaps a cut one, with nothing spendable."""
    return _RUN.sub(HIDDEN, without_secrets(found, text.encode()).decode())


_ID = re.compile(rb"(?:pay|session)_[\w-]{16,}")
_RUN = re.compile(r"[\w+-]{100,}")
"""Longer than an address or a hash, and shorter than a cut signature."""


def hidden_message(text: str) -> str:
    """Return a header's message with nothing spendable."""
    try:
        read = decoded(json_of_header(text))
    except BadMessage:
        read = None
    return to_base64(hidden(read)) if isinstance(read, dict) else HIDDEN


def hidden_body(body: bytes, *, is_cut: bool) -> bytes:
    """Return a body with nothing spendable; a cut body, or broken JSON, becomes `***`."""
    read = decoded(body)
    if isinstance(read, dict | list):
        return encode(hidden(read))
    looks_like_json = body.lstrip()[:1] in (b"{", b"[")
    if looks_like_json or is_cut:
        return HIDDEN.encode()
    return _PACKED.sub(HIDDEN.encode(), body)


def hidden(value: Any, depth: int = 0) -> Any:
    """Return JSON without signatures, and with digests of proofs."""
    if depth > _DEEPEST:
        return HIDDEN
    if isinstance(value, list):
        return [hidden(each, depth + 1) for each in value]
    if isinstance(value, str):
        # no signature in hex, no spendable message in base64
        is_packed = _PACKED.fullmatch(value.encode("utf-8", "replace")) is not None
        message = hidden_message(value) if is_packed else HIDDEN
        return message if message != HIDDEN else _LONG_HEX.sub(HIDDEN, value)
    if not isinstance(value, dict):
        return value
    return {name: _field(name, each, depth + 1) for name, each in value.items()}


_LONG_HEX = re.compile(r"[0-9a-fA-F]{128,}")


def _field(name: str, value: Any, depth: int) -> Any:
    if name == "signature":
        return f"{value[:6]}…({len(value)} characters)" if isinstance(value, str) else HIDDEN
    if name == "paymentHeader":
        return hidden_message(value) if isinstance(value, str) else hidden(value, depth)
    if name == "payload":
        return _payload(value, depth)
    if name in _ID_FIELDS and isinstance(value, str):
        return digest(value)
    return hidden(value, depth)


def _payload(value: Any, depth: int) -> Any:
    if not isinstance(value, dict):
        return HIDDEN
    if not _PLAIN.isdisjoint(value) or "nonce" in value:  # "nonce": flat, as Cronos has it
        return {
            name: _field(name, each, depth) if name in _KEPT else HIDDEN
            for name, each in value.items()
        }
    return HIDDEN


_KEPT = frozenset(
    {
        *("authorization", "signature", "from", "to", "value", "validAfter", "validBefore"),
        *("nonce", "asset"),
    }
)


# --- reading ----------------------------------------------------------------------------

MAX_PLAIN = 256 * 1024
"""Most bytes of a decompressed body."""
_SHOWS = (b"paymentheader", b"paymentpayload", b"payment-signature", b"x402")
"""Marks of a payment in a body, in lower case: any transport of x402 writes one of them."""
_MARKS = (*_SHOWS, b"paymentrequirements")
_ESCAPED = re.compile(rb"""\\(?:u00([2-7][0-9a-fA-F])|([/"]))""")
_FORMS = {b"gzip": (31,), b"x-gzip": (31,), b"deflate": (15, -15)}
"""zlib's `wbits` for each encoding that can be decompressed in part, tried in this order."""


def _inflated(body: bytes, forms: tuple[int, ...]) -> tuple[bytes, bool]:
    """Return a body decompressed, `MAX_PLAIN` bytes at most, and whether it is complete."""
    for form in forms:
        found, left = b"", body
        try:
            while left and len(found) < MAX_PLAIN:  # gzip may have several members
                inflating = zlib.decompressobj(form)
                found += inflating.decompress(left, MAX_PLAIN - len(found))
                if not inflating.eof:
                    return found, False
                left = inflating.unused_data
        except zlib.error:
            continue
        return found, not left
    return b"", False


@dataclass(frozen=True, slots=True)
class Half:
    """A request or an answer, with its body decompressed."""

    headers: httpx.Headers
    body: bytes
    is_cut: bool = False
    is_sealed: bool = False
    """Whether the body is in an encoding that is not decoded here."""

    @property
    def plain(self) -> bytes:
        """The body with JSON's escaped characters restored, to look for marks."""
        if b"\\" not in self.body:
            return self.body
        return _ESCAPED.sub(lambda it: it[2] or bytes([int(it[1], 16)]), self.body)

    @classmethod
    def of(cls, headers: RawHeaders, kept: Kept) -> "Half":
        """Return a half of an exchange that passed."""
        listed = httpx.Headers(headers).get("content-encoding", "").encode()
        named = [each.strip().lower() for each in listed.split(b",")]
        codings = [each for each in named if each not in (b"", b"identity")]
        body, is_cut, is_sealed = kept.begin, kept.is_cut, False
        if len(codings) == 1 and codings[0] in _FORMS:
            body, is_whole = _inflated(body, _FORMS[codings[0]])
            is_cut = is_cut or not is_whole
        elif codings:
            is_sealed = bool(body)
        return cls(httpx.Headers(headers), body, is_cut, is_sealed)


@dataclass(slots=True)
class Messages:
    """The messages of an exchange, as HTTP."""

    to: Part
    url: str
    """The URL at the upstream."""
    method: str
    target: str
    status: int | None
    sent: Half
    answered: Half
    is_payment: bool
    """Whether the exchange belongs to a payment at all."""
    is_broken: bool = False
    """Whether the client did not get the whole answer."""
    tool: str | None = None
    """The name of the called MCP tool."""
    ways: list[Way] = field(default_factory=list)
    """The offers of a 402."""
    payment: str | None = None
    """The payment's header, unchanged."""
    shown: int = 0
    """The number of payments in the request's headers."""
    signed: SignedPayment | None = None
    receipt: dict[str, Any] | None = None
    """The receipt in the answer, or None."""

    @property
    def resource(self) -> str:
        """The paid resource; in two steps, the body of the second request names it."""
        body = decoded(self.sent.body, dict[str, Any]) or {}
        wanted = body.get("paymentRequirements")
        named = wanted.get("resource") if isinstance(wanted, dict) else None
        return named if isinstance(named, str) else self.target

    @property
    def is_paying(self) -> bool:
        """Whether the request pays: in one step, or as the second of two."""
        return self.payment is not None

    @property
    def is_unread(self) -> bool:
        """Whether the request shows a payment that cannot be read whole, perhaps of real money."""
        if self.sent.is_sealed or self.shown > 1:
            return True
        shows = self.is_paying or any(mark in self.sent.plain.lower() for mark in _SHOWS)
        return shows and self.signed is None

    @property
    def is_delivered(self) -> bool:
        """Whether the client got the whole answer, with a status 2xx."""
        return self.status is not None and 200 <= self.status < 300 and not self.is_broken

    @property
    def nonce(self) -> str | None:
        """The nonce of the authorization, in hex."""
        return self.signed.authorization.nonce.hex() if self.signed else None

    @property
    def settled(self) -> bool:
        """Whether the answer reports the payment as settled."""
        return self.receipt is not None and self.receipt.get("success") is True

    @property
    def settled_base(self) -> int:
        """The settled amount: of `upto` what the answer says was used, else what was signed."""
        assert self.signed is not None
        said = self.receipt if self.receipt and self.signed.scheme == UPTO else {}
        used = base_in(said.get("amount"))
        return self.signed.authorization.value if used is None else used

    @property
    def is_valid(self) -> bool:
        """Whether a facilitator's verify answered that the payment is valid."""
        return (decoded(self.answered.body, dict[str, Any]) or {}).get("isValid") is True

    @property
    def tx_hash(self) -> str | None:
        """The hash of the transaction in the answer."""
        named = self.receipt and (self.receipt.get("transaction") or self.receipt.get("txHash"))
        return named if isinstance(named, str) else None

    @property
    def refusal(self) -> str | None:
        """The answer's reason for a refusal, in the server's own words."""
        body = decoded(self.answered.body, dict[str, Any]) or {}
        offer = json_in(self.answered.headers.get(REQUIRED_HEADER), dict[str, Any]) or {}
        words = (
            (self.receipt or {}).get("errorReason"),
            body.get("invalidReason"),
            body.get("error"),
            offer.get("error"),
        )
        return next((each for each in words if isinstance(each, str) and each), None)

    @property
    def is_open(self) -> bool:
        """Whether an answer's word for a failure leaves the fate of the money open."""
        if self.settled:
            return False
        word, fields = self.refusal or "", self.receipt or {}
        is_reported = self.receipt is not None or word in WORDS
        return is_reported and meaning_of(word, fields.get("transaction")) is Meaning.UNCLEAR


def messages_of(exchange: Exchange) -> Messages:
    """Return the payment messages of an exchange with a service or a facilitator."""
    sent = Half.of(exchange.headers, exchange.sent)
    answered = Half.of(exchange.answer_headers, exchange.answered)
    headers = (*exchange.headers, *exchange.answer_headers)
    found = Messages(
        to=exchange.to,
        url=exchange.url,
        method=exchange.method,
        target=exchange.target,
        status=exchange.status,
        sent=sent,
        answered=answered,
        is_broken=bool(exchange.broke),
        is_payment=exchange.status == 402
        or exchange.to == "facilitator"
        or not OF_PAYMENTS.isdisjoint(name.lower() for name, _ in headers)
        or any(mark in sent.plain.lower() for mark in _MARKS),
    )
    call = decoded(sent.body, dict[str, Any]) if b'"tools/call"' in sent.plain else None
    if call is not None and call.get("method") == "tools/call":
        _translate(found, call)
    if found.is_payment:
        _read(found)
    return found


def _translate(found: Messages, call: Mapping[str, Any]) -> None:
    params = call.get("params")
    if not isinstance(params, dict) or not isinstance(name := params.get("name"), str):
        return
    sent, answered = found.sent, found.answered
    incoming = mcp.Incoming(answered.headers.get("content-type", ""), call.get("id"))
    incoming.feed(answered.body)
    incoming.end()
    said = mcp.answered(incoming.response) if incoming.response else None
    paid = mcp.payment_in(params)
    if not paid and (said is None or (said.status != 402 and RECEIPTS.isdisjoint(said.headers))):
        return  # a free tool, or an answer without payment data
    body = encode({"name": name, "arguments": params.get("arguments", {})})
    found.method, found.target, found.tool = "tools/call", mcp.RESOURCE + name, name
    headers = [("host", sent.headers.get("host", "")), *paid.items()]
    found.sent, found.is_payment = Half(httpx.Headers(headers), body, sent.is_cut), True
    if said is not None:
        found.status = said.status
        found.answered = Half(httpx.Headers(said.headers), said.body, answered.is_cut)


RECEIPTS = frozenset(RESPONSE_HEADERS.values())


def _read(found: Messages) -> None:
    sent, answered = found.sent, found.answered
    body = decoded(sent.body, dict[str, Any]) or {}
    if found.status == 402:
        found.ways = ways_in(answered.headers, answered.body)
    names = PAYMENT_HEADERS.values()
    in_header = [each for name in names for each in sent.headers.get_list(name) if each]
    found.payment, found.shown = next(iter(in_header), None), len(in_header)
    if found.payment is None and isinstance(inner := body.get("paymentHeader"), str):
        found.payment = inner
    try:
        if found.payment is not None:
            found.signed = recognize(found.payment).signed
        elif isinstance(inner := body.get("paymentPayload"), dict):
            found.signed = recognized(inner).signed
    except BadMessage:  # `findings_of` reports it
        pass
    given = (json_in(answered.headers.get(name), dict[str, Any]) for name in RECEIPTS)
    said = decoded(answered.body, dict[str, Any]) or {}
    found.receipt = next((each for each in given if each), said if "success" in said else None)


def networks_in(found: Messages) -> set[str]:
    """Return the names of all networks in an exchange."""
    named = {str(way.fields.get("network")) for way in found.ways}
    if found.signed is not None:
        named.add(found.signed.network)
    for text in (found.payment, *(found.answered.headers.get(name) for name in RECEIPTS)):
        named |= set(_named(json_in(text) if text else None))
    for body in (found.sent.body, found.answered.body):
        named |= set(_named(decoded(body, dict[str, Any])))
    return named | _mentioned(found)


def _mentioned(found: Messages) -> set[str]:
    """Return the networks mentioned anywhere in an exchange, also in parts that we cannot parse.

    Goods may have a field `network` of another meaning: only names of chains count.
    """
    headers = [text for half in (found.sent, found.answered) for text in half.headers.values()]
    texts = [found.sent.plain, found.answered.plain, *(each.encode() for each in headers)]
    packed = [run for text in texts for run in _PACKED.findall(text)[:MOST_PACKED]]
    texts += [Half(httpx.Headers(), _unpacked(each)).plain for each in packed]
    names = {name.decode() for text in texts for name in _NETWORK.findall(text)}
    return {name for name in names if _CHAIN.fullmatch(name) or name in NETWORKS}


def _unpacked(text: bytes) -> bytes:
    """Return the bytes of a text in base64, in either alphabet, without any check."""
    digits = text.translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    digits = digits[: len(digits) - (len(digits) % 4 == 1)]
    return base64.b64decode(digits + b"=" * (-len(digits) % 4))


def _named(value: Any, depth: int = 6) -> Iterator[str]:
    """Yield each `network` in a message of a payment."""
    if isinstance(value, dict) and depth:
        for name, each in value.items():
            if name == "network" and isinstance(each, str):
                yield each
            elif name in _HOLDERS:
                yield from _named(each, depth - 1)
    elif isinstance(value, list) and depth:
        for each in value[:20]:
            yield from _named(each, depth - 1)


_NETWORK = re.compile(rb'"network"\s*:\s*"([\x20-\x7e]{1,80}?)"')
_CHAIN = re.compile(r"[a-z0-9-]{3,8}:[\w-]{1,32}")
_PACKED = re.compile(rb"[A-Za-z0-9+/_-]{100,}={0,2}")
MOST_PACKED = 50
_HOLDERS = ("accepts", "accepted", "paymentRequirements", "paymentPayload", "payload", "kinds")


def is_test(network: str, known: Mapping[str, Network]) -> bool:
    """Tell whether a network is a test network; an unknown one counts as real money."""
    found = network_called(network, known)
    return found.is_test if found is not None else chain_id_of(network) in TEST_CHAIN_IDS


def findings_of(
    found: Messages, known: Mapping[str, Network], now_s: int, offers: list[Way]
) -> list[Finding]:
    """Return the findings of an exchange; `offers` are from the paid 402."""
    in_body = any(mark in found.sent.plain for mark in (b'"paymentHeader"', b'"paymentPayload"'))
    whole = found.sent.body.decode("utf-8", "replace")
    texts = [whole] if in_body else [found.payment] if found.payment else []
    receipts = [name for name in RESPONSE_HEADERS.values() if name in found.answered.headers]
    texts += [
        f"{name}: {found.answered.headers[name]}" for name in receipts[-1 if found.tool else 0 :]
    ]
    findings = list[Finding]()
    for text in texts:
        try:
            for part in explain(recognize(text), known, now_s):
                findings += part.findings
        except BadMessage as wrong:
            do = "Send what the standard shows."
            findings.append(Finding("message", str(wrong)[:300], "a message of a payment", do))
    if found.signed is not None and (way := _paid_way(found.signed, offers)) is not None:
        findings += of_terms(found.signed.authorization, way)
    if found.to == "facilitator" and found.is_open:
        findings += of_settlement(found.receipt or {}, known)
    findings += _of_outcome(found)
    return [each for each in dict.fromkeys(findings) if not each.skipped]


def findings_of_402(found: Messages, known: Mapping[str, Network], now_s: int) -> list[Finding]:
    """Return the findings of an unpaid 402, by the rules of `doctor`."""
    url = "http://tool/" if found.tool else found.url
    request = httpx.Request("POST" if found.tool else found.method, url)
    response = httpx.Response(402, headers=found.answered.headers, content=found.answered.body)
    if "content-encoding" in response.headers:
        del response.headers["content-encoding"]
    wrong = examine(request, response, known, now_s=now_s).findings
    of_http = ("URL", "resource") if found.tool else ()
    return [each for each in wrong if not (each.skipped or each.about.startswith(of_http))]


def _paid_way(signed: SignedPayment, offers: list[Way]) -> Way | None:
    for way in offers:
        asset = str(way.fields.get("asset", "")).lower()
        is_its = way.fields.get("scheme") == signed.scheme and signed.asset.lower() in ("", asset)
        if is_its and way.fields.get("network") == signed.network:
            return way
    return None


def _of_outcome(found: Messages) -> Iterator[Finding]:
    is_served = found.status is not None and 200 <= found.status < 300
    if not found.is_paying or found.to == "facilitator":
        return
    in_one_step = b'"paymentHeader"' not in found.sent.body
    if in_one_step and is_served and found.receipt is None:
        do = "Answer with the facilitator's answer as base64: a payer has no other receipt."
        yield Finding("receipt", "none", "PAYMENT-RESPONSE in the answer", do, stops=False)
    if found.settled and not is_served and found.status is not None:
        do = "Serve what was paid for when the same payment comes again, or refund it."
        yield Finding("answer", f"{found.status}, and a receipt", "what was paid for", do)
    if found.receipt is not None and found.receipt.get("success") is False and is_served:
        do = "Serve only what is settled, or say so: the payer keeps the money."
        yield Finding("answer", f"{found.status}, and not settled", "402", do)
