"""Paid tools of MCP: a call and a result as a request and an answer of HTTP, and back.

x402 version 2 has the same messages for MCP as for HTTP, in other places: a tool's result with
`isError` holds the offer, `_meta["x402/payment"]` of a call the payment, and `_meta` of a result
the outcome. This file translates, so payers, sellers and judges over HTTP work with tools, too: a
call is POST of name and arguments with the header `Mcp-Name`; the payment is in the usual header,
and 402, PAYMENT-REQUIRED and PAYMENT-RESPONSE answer. The draft `org.x402/payment` is read, and
never advertised. MCP's streams of events are read here, too.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from x402sim.protocol import x402
from x402sim.protocol.messages import BadMessage, decode, decoded, encode, fields_of

PAYMENT, RESPONSE = "x402/payment", "x402/payment-response"
"""The keys of `_meta`: of a call that pays, and of a result."""
TOOL = "Mcp-Name"
"""The header of a tool call, with the tool's name as written by `header_of`; in MCP since
2026-07-28."""
_BEGIN, _END = "=?base64?", "?="
"""Prefix and suffix of a name in Base64 (MCP 2026-07-28, value encoding of headers)."""
PROTOCOL, SESSION = "MCP-Protocol-Version", "Mcp-Session-Id"
REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions of MCP that begin with `initialize`, the newest first."""
ACCEPTED = "application/json, text/event-stream"
EVENTS = "text/event-stream"
RESOURCE = "mcp://tool/"
"""The beginning of a tool's URL as a resource, before the name."""
INVALID_PARAMS, NO_METHOD = -32602, -32601
_CLIENT_ERRORS = (-32600, NO_METHOD, INVALID_PARAMS)  # the errors of JSON-RPC for a wrong request
_ERROR = "x402/error"


class Call(msgspec.Struct, frozen=True):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """A result of a tool, as HTTP would answer: names of headers as they are written."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def message(number: int | str | None, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request of JSON-RPC; a notification without a number."""
    named = {} if number is None else {"id": number}
    return encode({"jsonrpc": "2.0", **named, "method": method, "params": params})


def header_of(name: str) -> str:
    """Return the header of a name: the name, or UTF-8 in Base64 if the name cannot be a header."""
    is_plain = name.isascii() and name.isprintable() and name == name.strip()
    if is_plain and not (name.startswith(_BEGIN) and name.endswith(_END)):
        return name
    return _BEGIN + b64encode(name.encode("utf-8", "replace")).decode() + _END


def hello(name: str, version: str) -> dict[str, Any]:
    """Return the parameters of `initialize`."""
    about = {"name": name, "version": version}
    return {"protocolVersion": REVISIONS[0], "capabilities": {}, "clientInfo": about}


def params_of(call: Call, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of tools/call, with the payment of a request's headers.

    `headers` must find names in any case. A payment other than JSON stays a text.
    """
    params: dict[str, Any] = {"name": call.name, "arguments": call.arguments}
    for version in reversed(x402.VERSIONS):
        if (text := headers.get(x402.PAYMENT_HEADERS[version])) is not None:
            value = x402.json_in(text)
            return params | {"_meta": {PAYMENT: text if value is None else value}}
    return params


def payment_in(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the header of the payment in the parameters of a call; empty without one."""
    if (payment := fields_of(params.get("_meta")).get(PAYMENT)) is None:
        return {}
    version = fields_of(payment).get("x402Version")
    return {x402.PAYMENT_HEADERS[x402.version_in(version) or 2]: x402.to_base64(payment)}


# --- results ---------------------------------------------------------------------------------


def answered(response: Mapping[str, Any]) -> Answered:
    """Return a response of JSON-RPC to tools/call as HTTP would answer.

    402 has the offer. Another failed result is 500, as are a refusal without an offer and an error
    of JSON-RPC; or 400 for a wrong request. Anything but a result or an error is 502.
    """
    result, error = response.get("result"), response.get("error")
    if isinstance(error, dict):
        if (required := _required(error.get("data"))) is not None:
            return _asks(required, error["data"], error)
        status = 400 if error.get("code") in _CLIENT_ERRORS else 500
        return Answered(status, _JSON, encode({"error": str(error.get("message"))[:400]}))
    if not isinstance(result, dict):
        return Answered(502, _JSON, encode(response))
    if (required := required_in(result)) is not None:
        return _asks(required, result, result)
    headers = _JSON | _receipt(fields_of(result.get("_meta")).get(RESPONSE))
    is_failed = bool(result.get("isError")) or result.get("resultType") == _REQUIRED_TYPE
    return Answered(500 if is_failed else 200, headers, encode(result))


_JSON = {"Content-Type": "application/json"}
_REQUIRED_TYPE = "payment_required"


def required_in(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the offer in a tool's failed result, or None.

    The offer is in `structuredContent`, or as JSON in the first text, perhaps as `x402/error`. The
    draft has `paymentRequired`.
    """
    if result.get("resultType") == _REQUIRED_TYPE:
        return _required(result.get("paymentRequired"))
    if result.get("isError") is not True:
        return None
    return _required(result.get("structuredContent")) or _required(text_in(result))


def text_in(result: Mapping[str, Any]) -> Any:
    """Return the first text of a tool's result as JSON; None if it is none."""
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return decoded(text.encode("utf-8", "replace")) if isinstance(text, str) else None


def _required(value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict) and isinstance(inner := value.get(_ERROR), dict):
        value = inner.get("data")
    is_it = isinstance(value, dict) and "x402Version" in value
    return value if is_it and isinstance(value.get("accepts"), list) else None


def _asks(
    required: dict[str, Any], beside: Mapping[str, Any], result: Mapping[str, Any]
) -> Answered:
    """Return the 402 of an offer, with the outcome of a payment, if told."""
    nested = required.get(RESPONSE, beside.get(RESPONSE))
    version = x402.version_in(required.get("x402Version")) or 2
    headers = _JSON | _receipt(fields_of(result.get("_meta")).get(RESPONSE, nested), version)
    if version == 2:
        headers[x402.REQUIRED_HEADER] = x402.to_base64(required)
        return Answered(402, headers, b"{}")
    return Answered(402, headers, encode(required))


def _receipt(value: Any, version: x402.Version | None = None) -> dict[str, str]:
    """Return the header of a receipt; for both versions if the version is unknown."""
    if value is None:
        return {}
    text = x402.to_base64(value)
    versions = x402.VERSIONS if version is None else (version,)
    return {x402.RESPONSE_HEADERS[number]: text for number in versions}


def result_of(
    status: int, headers: Mapping[str, str], body: bytes, resource: str
) -> dict[str, Any]:
    """Return an answer of HTTP as the result of a tool; `headers` must find names in any case.

    `resource` is the tool's URL, which an offer names. Another error is a text, and bytes that are
    no text are a resource.
    """
    receipt = x402.json_in(headers.get(x402.RESPONSE_HEADERS[2]))
    meta = {} if receipt is None else {"_meta": {RESPONSE: receipt}}
    required = x402.json_in(headers.get(x402.REQUIRED_HEADER))
    if status == 402 and isinstance(required, dict):
        required["resource"] = {**fields_of(required.get("resource")), "url": resource}
        return {"isError": True, "structuredContent": required, **_texts(required), **meta}
    value = decoded(body)
    is_error = {"isError": True} if status >= 400 else {}
    whole = {"structuredContent": value} if isinstance(value, dict) and not is_error else {}
    told: dict[str, Any]
    try:
        told = {"type": "text", "text": body.decode()}
    except UnicodeDecodeError:
        data = {"uri": resource, "blob": b64encode(body).decode()}
        data |= {"mimeType": headers.get("content-type") or "application/octet-stream"}
        told = {"type": "resource", "resource": data}
    content = {"content": [told]} if value is None else _texts(value)
    return {**is_error, **whole, **content, **meta}


def _texts(value: Any) -> dict[str, Any]:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {"content": [{"type": "text", "text": text}]}


# --- what came over the wire -----------------------------------------------------------------


@dataclass(slots=True)
class Incoming:
    """The body of an answer while it arrives: JSON as a whole, or a stream of events.

    `response` is the response of JSON-RPC to the request `number`, once arrived.
    """

    content_type: str
    number: int | str | None
    response: dict[str, Any] | None = None
    body: bytearray = field(default_factory=bytearray)
    """What came, of anything but events."""
    unread: str = ""
    """Why a message is no JSON that can be read."""
    _line: bytes = b""  # the line of a stream that has not ended yet
    _data: list[bytes] = field(default_factory=list)

    def feed(self, chunk: bytes) -> bool:
        """Take a part of the body; tell whether no more is needed."""
        if not self.is_events:
            self.body += chunk
            return False
        text = self._line + chunk
        # a last "\r" may be half of a line's end
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1
        self._line = text[end:]
        for line in text[:end].splitlines():
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                self._take(b"\n".join(self._data))
                self._data = []
        return self.response is not None

    def end(self) -> None:
        """Read a whole body."""
        if not self.is_events:
            self._take(bytes(self.body))

    @property
    def is_events(self) -> bool:
        """Whether it is a stream of events."""
        return self.content_type.partition(";")[0].strip().lower() == EVENTS

    def _take(self, data: bytes) -> None:
        try:
            value = decode(data, Any, is_wide=True)  # a caller bounds its bytes
        except BadMessage as wrong:
            self.unread = str(wrong)
            return
        is_mine = isinstance(value, dict) and value.get("id") == self.number
        if is_mine and not {"result", "error"}.isdisjoint(value):
            self.response = self.response or value
