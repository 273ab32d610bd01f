"""What is known of a payment, and no more: signed, seen to be paid, and how long it is usable."""

from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.payer.core import PAYMENT_ID, PaymentFailed
from x402sim.payer.flow import PROOFS
from x402sim.payer.mistakes import Draft
from x402sim.payer.reading import UNKNOWN
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.findings import is_paid, is_pending
from x402sim.protocol.refusals import Refusal, is_final
from x402sim.protocol.values import Fact, amount_in, answer, data_of
from x402sim.protocol.ways import object_in
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS, VERSIONS, json_in
from x402sim.text.times import moment, readable


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of the last payment."""

    sent: Draft
    """What was signed."""
    transaction: str = ""
    """The transaction of a receipt that says that it was paid; "" if none was seen."""
    pending: str = ""
    """The transaction of a receipt that says that it may still be paid."""
    receipt: str = ""
    """What is to say of any other receipt."""
    is_used: bool | None = None
    """What the chain says of the authorization; None if it was not asked."""

    @property
    def is_seen_paid(self) -> bool:
        """Whether a receipt or the chain says that it was paid."""
        return bool(self.transaction) or self.is_used is True

    def told(self) -> str:
        """Return what is known of the payment, in words."""
        if self.transaction:
            return f"paid (transaction {self.transaction})"
        if self.is_used:
            return "paid (the chain has used its authorization)"
        sent, seen = self.sent, self.receipt or "no receipt came"
        if self.pending:
            seen = f"the receipt says that transaction {self.pending} is not mined yet"
        if self.is_used is False:
            seen += ", and the chain has not used it"
        until = moment(sent.auth.valid_before, sent.now_s)
        return f"signed, not seen to be paid: {seen}; it can be used until {until}"

    def question(self) -> str:
        """Return whom to ask whether the payment was made."""
        sent = self.sent
        asks = "the token"
        if sent.payment_id:
            asks = f"GET /api/payments/{sent.payment_id}, or the token"
        state = f"authorizationState({checksum(sent.auth.from_)}, {to_hex(sent.auth.nonce)})"
        return f"whoever pays again before may pay twice. Whether it was used, ask {asks}: {state}"

    def data(self) -> dict[str, Any]:
        """Return it for JSON: amounts in base units and decimals, times in Unix seconds."""
        auth, network = self.sent.auth, self.sent.named
        return {
            "signed": True,
            "seen_paid": self.is_seen_paid,
            "used_on_chain": self.is_used,
            "transaction": self.transaction or self.pending or None,
            "pending": bool(self.pending),
            "network": network.name,
            "chain_id": network.chain_id,
            "amount": data_of(amount_in(str(auth.value), network)),
            "from": checksum(auth.from_),
            "to": checksum(auth.to),
            "nonce": to_hex(auth.nonce),
            "valid_after": auth.valid_after,
            "valid_before": auth.valid_before,
        }


def outcome_of(sent: Draft, receipts: list[dict[str, Any]]) -> Outcome:
    """Return what is known of a payment by the receipts that were answered to it."""
    paid = next((each for each in receipts if is_paid(each)), {})
    pending = next((each for each in receipts if is_pending(each)), {})
    transaction = paid.get("transaction", paid.get("txHash", ""))
    receipt = ""
    for each in receipts:
        why = each.get("errorReason") or "it failed"
        receipt = f"the receipt says that {str(why)[:100]}"
        if each.get("success") is True:
            receipt = "the receipt names no hash of a transaction"
    return Outcome(sent, str(transaction), str(pending.get("transaction", "")), receipt)


def receipts_in(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the receipts in an answer, of any dialect: in its headers, and in its body."""
    found = [_in_header(response, RESPONSE_HEADERS[each]) for each in VERSIONS]
    body = _body(response)
    return [each for each in (*found, body if "txHash" in body else {}) if "success" in each]


def said(response: httpx.Response) -> Fact:
    """Return what an answer says of a refusal: its status, error, reason and `final`."""
    read, body, words = _read(response), _body(response), []
    words += [body.get("error"), body.get("reason")]
    for name in (REQUIRED_HEADER, *RESPONSE_HEADERS.values()):
        told = _in_header(response, name)
        words += [told.get(each) for each in ("error", "errorReason", "errorMessage")]
    texts = dict.fromkeys(each[:400] for each in words if isinstance(each, str) and each)
    final = f" (final: {str(body['final']).lower()})" if "final" in body else ""
    kept = [each for each in texts if not any(each in other and each != other for other in texts)]
    told_all = ": ".join(kept) or repr(read[:200].decode("utf-8", "replace")) * bool(read)
    return answer(response.status_code, f"{readable(told_all)}{final}".strip())


def _read(response: httpx.Response) -> bytes:
    return response.content if response.is_stream_consumed else b""


def _body(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer; an empty one for any other, and for one not read."""
    return object_in(_read(response)) or {}


def _in_header(response: httpx.Response, name: str) -> dict[str, Any]:
    return json_in(response.headers.get(name), dict[str, Any]) or {}


def failure(
    failed: PaymentFailed | httpx.HTTPError,
    outcome: Outcome,
    answer: httpx.Response | None,
    last: httpx.Request | None,
) -> str:
    """Return why a signed payment failed, and what to do: a new call would sign another one.

    `answer` is that to the payment, if one came, and `last` the last request.
    """
    why = failed.why if isinstance(failed, PaymentFailed) else str(failed)
    if answer is not None and answer.is_success:
        return f"{why}{_goods(failed, last)}"
    body = {} if answer is None else _body(answer)
    error, final = str(body.get("error")), body.get("final")
    if answer is not None and is_final(error, final if isinstance(final, bool) else None):
        refusal = Refusal.named(error)
        remedy = refusal.row.remedy if refusal else ""
        return why if remedy in why else f"{why}. {remedy}"
    if isinstance(failed, httpx.HTTPError):
        why = f"{UNKNOWN}: {why.rstrip('.')}"
    sent, goods, told = outcome.sent, "", outcome.told()
    if sent.payment_id:
        goods = f"the request with -H '{PAYMENT_ID}: {sent.payment_id}' gets the goods"
    if outcome.is_seen_paid:
        why = why.removeprefix(f"{UNKNOWN}: ")
        return f"{why.rstrip('.')}. It is {told}{'; ' * bool(goods)}{goods}"
    goods = f". If it was, {goods}" * bool(goods)
    return f"{why}. The authorization is {told}; {outcome.question()}{goods}"


def _goods(failed: Exception, last: httpx.Request | None) -> str:
    """Return how to get what was paid for, if the last request was not answered."""
    if last is None or not isinstance(failed, httpx.HTTPError) or not (proof := proof_in(last)):
        return ""
    return f" It was paid: {last.method} {last.url.path} with {proof} gets what was paid for"


def in_vain(outcome: Outcome, answer: httpx.Response) -> str:
    """Return what to do about an error that answers a request with a payment."""
    proof, status = proof_in(answer.request), answer.status_code
    if outcome.is_seen_paid:
        again = f"; correct the request, and send it with {proof}: that is paid for"
        return f"paid, and the server answered {status}{again * bool(proof)}"
    again = f". The request with {proof} sends the same payment again" * bool(proof)
    return f"the server answered {status}; {outcome.told()}; {outcome.question()}{again}"


def proof_in(request: httpx.Request) -> str:
    """Return the option that sends the proof of a request again; "" if it has none."""
    headers = request.headers
    return next((f"-H '{name}: {headers[name]}'" for name in PROOFS if name in headers), "")
