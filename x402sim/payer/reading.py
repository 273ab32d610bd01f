"""Parses a server's answers to a payment in two steps: receipts and refusals.

A server may be hostile or broken, so every field is checked before it is used or shown.
"""

import re
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec import structs

from x402sim.payer.core import PaymentFailed
from x402sim.payer.purchases import Payment
from x402sim.protocol.messages import Receipt, decoded
from x402sim.protocol.refusals import Refusal, is_final
from x402sim.protocol.x402 import Settlement
from x402sim.protocol.x402_reasons import WORDS, Meaning

UNKNOWN = "it is not known whether the payment was made"
_HINTS = re.compile(
    r"already|consumed|duplicate|replay|spent|is used|nonce[\s_-]*((is|was|has been)[\s_-]*)?used",
    re.IGNORECASE,
)
"""What servers, libraries and tokens write if an authorization has been used before."""
KEPT_TEXT = 1_000
"""The most letters that are kept of a text in a receipt, or of an error."""
Kept = TypeVar("Kept", Receipt, Settlement)
_SAYS_NOTHING = (408, 425, 429)
"""Statuses that report nothing about the payment: too slow, too early, too many requests."""


class Made(msgspec.Struct, frozen=True):
    """A server's report that a payment was made: a receipt, or else the answer in words."""

    receipt: Receipt | None = None
    hint: str = ""


class AttemptOver(PaymentFailed):
    """The server reports that the payment was not made, and the authorization has expired."""


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without a receipt, of any shape (section 7 prescribes no shape).

    `final` is the field of the answer, or None. `refuses`: the answer is a refusal without a word
    that leaves the outcome open. `hints`: perhaps the payment was made before.
    """

    answered: str
    refusal: Refusal | None
    final: bool | None
    refuses: bool
    hints: bool


def shortened(receipt: Kept) -> Kept:
    """Return a receipt to keep: a server may send a megabyte for each base unit."""
    texts = {name: getattr(receipt, name) for name in receipt.__struct_fields__}
    cut = {name: text[:KEPT_TEXT] for name, text in texts.items() if isinstance(text, str)}
    return structs.replace(receipt, **cut)


def read_settlement(response: httpx.Response, payment: Payment) -> Made:
    """Return the report of an answer, a receipt or an error, that a payment was made.

    Raises `AttemptOver` if the payment was refused and has expired. Raises `PaymentFailed` if it
    was not made or may still be: the same header should then be sent again.
    """
    body = decoded(response.content)
    if response.status_code == 200 and isinstance(body, dict) and body.get("success") is True:
        receipt: Receipt | None = decoded(response.content, Receipt)
        if receipt is None:
            got = f"200 {quoted(response)}"
            raise PaymentFailed(f"{UNKNOWN}: the server answered {got}", payment.retry_advice)
        return Made(receipt=shortened(receipt))
    error = _read_error(response, body)
    if _says_made(error, payment):
        return Made(hint=error.answered)
    remedy = f" {error.refusal.row.remedy}" if error.refusal else ""
    is_refusal = is_final(error.refusal.text if error.refusal else "", error.final)
    to_resend = error.refusal is not None and error.refusal.row.resend
    refuses = error.final is None and error.refuses and not to_resend
    # only after the expiry: until then a server that refuses could still submit the authorization
    if payment.is_expired and (is_refusal or refuses):
        raise AttemptOver(f"the payment was refused: {error.answered}.{remedy}")
    lacks_funds = error.refusal is Refusal.INSUFFICIENT_BALANCE
    clock_skew_note = payment.clock_skew_note if error.refusal is Refusal.EXPIRED else ""
    answered = f"{error.answered}.{remedy if lacks_funds else clock_skew_note}".rstrip(".")
    if error.final is False and lacks_funds:
        raise PaymentFailed(f"the payment was not made yet: {answered}", payment.retry_advice)
    if is_refusal and not payment.is_repeated:
        raise PaymentFailed(f"the payment was refused: {answered}", payment.retry_advice)
    raise PaymentFailed(f"{UNKNOWN}: the server answered {answered}", payment.retry_advice)


def _says_made(error: _Refusal, payment: Payment) -> bool:
    """Return whether an error reports the payment as made; then no other payment is signed.

    "Nonce already used" does, even with `final: true`: the payer drew the nonce at random, so only
    this authorization can have used the nonce, perhaps at a service without the record.
    """
    match error.refusal:
        case Refusal.ALREADY_SETTLED:
            return True
        case Refusal.NONCE_USED:
            return error.final is not False
        case _:
            return payment.is_expired and error.final is None and error.refuses and error.hints


def _read_error(response: httpx.Response, body: Any) -> _Refusal:
    """Read an error: a text of section 7 anywhere in a 4xx, or in an answer with `success: false`.

    In any other answer a text counts only if it is a whole value, because the page of a 500 may
    quote a program. If two texts are found, neither counts.
    """
    fields = body if isinstance(body, dict) else {}
    status, text, reason = response.status_code, fields.get("error"), fields.get("reason")
    final, success = fields.get("final"), fields.get("success")
    anywhere = 400 <= status < 500 or (status == 200 and success is False)
    values = [" ".join(value.split()) for value in _strings(response, body)]
    found = {
        refusal
        for refusal in Refusal
        if any(refusal.text in value if anywhere else refusal.text == value for value in values)
    }
    refusal = Refusal.named(text) if isinstance(text, str) else None
    if refusal is None and len(found) == 1:
        refusal = found.pop()
    if success is True:
        refusal = None
    if isinstance(text, str):
        if refusal is not None and refusal.text not in text:
            reason = refusal.text
        has_reason = isinstance(reason, str) and reason != ""
        answered = f"{status} {text}" + (f": {reason}" if has_reason else "")
    elif refusal is not None:
        answered = f"{status} {refusal.text}"
    else:
        answered = f"{status} {quoted(response)}"
    is_ours = isinstance(text, str) and isinstance(final, bool)
    is_open = any(WORDS.get(value) is Meaning.UNCLEAR for value in values)
    is_conflict = status == 409 and refusal in (None, Refusal.FAILED)
    return _Refusal(
        answered=answered[:KEPT_TEXT],
        refusal=refusal,
        final=final if is_ours or final is False else None,
        refuses=anywhere and success is not True and status not in _SAYS_NOTHING and not is_open,
        hints=is_conflict or any(_HINTS.search(value) for value in values),
    )


def is_inconclusive(response: httpx.Response) -> bool:
    """Return whether an answer leaves the payment unresolved: a 5xx, or 408, 425, 429."""
    return response.is_server_error or response.status_code in _SAYS_NOTHING


def _strings(response: httpx.Response, body: Any) -> list[str]:
    """Return the strings of a JSON body at any depth; of another body, its text."""
    if body is None:
        return [response.content.decode("utf-8", "replace")]
    found, left = [], [body]  # a loop: a hostile body is nested deeper than Python's stack
    while left:
        value = left.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
    return found


def quoted(response: httpx.Response) -> str:
    """Return the beginning of a body for an error's text, whatever charset the server names."""
    return repr(response.content[:800].decode("utf-8", "replace")[:200])


def says_used(text: str) -> bool:
    """Return whether a text may mean that an authorization has been used before."""
    return _HINTS.search(text.replace("_", " ")) is not None


def is_header_value(text: str) -> bool:
    """Return whether an id can be sent as a header: 1 to 256 visible ASCII characters."""
    return re.fullmatch(r"[!-~]{1,256}", text) is not None
