"""Payments with exactly one mistake, for testing a server's refusals.

A paying request is decoded, one field is changed, and the payment is signed again. `ObservedAuth`
sends the unpaid request, chooses a payer by the 402, changes the paying request, and reports every
request and answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx
from msgspec import structs

from x402sim.http.bounded import Limits
from x402sim.payer.core import PAY_PATH, PAYMENT_ID_HEADER, PaymentFailed, settlement
from x402sim.payer.flow import Flow, FlowAuth, Send, Step, send
from x402sim.payer.wallet import Wallet
from x402sim.protocol import x402
from x402sim.protocol.advice import ADVICE
from x402sim.protocol.crypto import Address, checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import encode_header, read_header, spelling_of
from x402sim.protocol.messages import decode, encode
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import BASE_SEPOLIA, TESTNET, Network
from x402sim.protocol.permit2_payments import (
    is_permit2,
    message_of,
    permit2_payment_of,
    terms_of,
)
from x402sim.protocol.ways import Dialect
from x402sim.text.words import moment

_ELSEWHERE = "/x402sim/another/resource"


@dataclass(frozen=True, slots=True)
class Draft:
    """A payment before it is signed and sent."""

    dialect: Dialect
    auth: Authorization
    signer: Wallet
    named: Network
    """The network and the token that the payment names."""
    signed_for: Network
    """The network and the token whose EIP-712 domain is signed."""
    resource: str
    """A path in two steps, else a URL; empty in version 1, which has none."""
    payment_id: str
    """In two steps only."""
    now_s: int
    by_permit2: bool = False
    """Whether it is a message of Permit2, with these terms."""

    @property
    def is_usable(self) -> bool:
        """Whether the token accepts the authorization, now or later, if its nonce is unused."""
        is_signed = (self.signer.address_bytes, self.signed_for) == (self.auth.from_, self.named)
        return is_signed and self.auth.valid_before > self.now_s

    def signing(self, **changes: Any) -> "Draft":
        """Return the draft with other fields of its authorization."""
        return replace(self, auth=structs.replace(self.auth, **changes))

    def paying(self, **changes: Any) -> "Draft":
        """Return the draft for a network and token with these changes, named and signed."""
        other = replace(self.named, **changes)
        return replace(self, named=other, signed_for=other)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake: the change of a draft, the field that shows the change, and the remedy."""

    name: str
    does: str
    change: Callable[[Draft], Draft]
    shows: Callable[[Draft], str]
    dialects: tuple[Dialect, ...] = tuple(Dialect)
    """The dialects in which a payer can make the mistake."""

    @property
    def remedy(self) -> str:
        """How to avoid the mistake."""
        return ADVICE[self.name]


def _value(draft: Draft) -> str:
    amount = to_decimal(draft.auth.value, draft.named.decimals)
    return f"value {draft.auth.value} = {amount} {draft.named.token_symbol}"


def _on_another_chain(draft: Draft) -> Draft:
    other = TESTNET if draft.named.chain_id != TESTNET.chain_id else BASE_SEPOLIA
    return draft.paying(name=other.name, chain_id=other.chain_id)


def _for_another_version(draft: Draft) -> Draft:
    own = draft.named.token_version
    return replace(draft, signed_for=replace(draft.named, token_version="2" if own == "1" else "1"))


def _from_empty_account(draft: Draft) -> Draft:
    wallet = Wallet.create()
    return replace(draft, signer=wallet).signing(from_=wallet.address_bytes)


def _domain(draft: Draft) -> str:
    named = draft.signed_for
    return f"signed for {named.token_name!r} version {named.token_version!r}"


MISTAKES = {
    each.name: each
    for each in (
        Mistake(
            "amount",
            "pays half of the amount",
            lambda draft: draft.signing(value=draft.auth.value // 2),
            _value,
        ),
        Mistake(
            "payee",
            "pays to the payer itself",
            lambda draft: draft.signing(to=draft.auth.from_),
            lambda draft: f"to {checksum(draft.auth.to)}",
        ),
        Mistake(
            "expired",
            "signs a window that closed an hour ago",
            lambda draft: draft.signing(
                valid_after=draft.now_s - 7200, valid_before=draft.now_s - 3600
            ),
            lambda draft: f"validBefore {moment(draft.auth.valid_before, draft.now_s)}",
        ),
        Mistake(
            "not-yet-valid",
            "signs a window that opens in an hour",
            lambda draft: draft.signing(
                valid_after=draft.now_s + 3600, valid_before=draft.now_s + 3900
            ),
            lambda draft: f"validAfter {moment(draft.auth.valid_after, draft.now_s)}",
        ),
        Mistake(
            "signature",
            "signs with the key of another account",
            lambda draft: replace(draft, signer=Wallet.create()),
            lambda draft: f"from {checksum(draft.auth.from_)}, signed by {draft.signer.address}",
        ),
        Mistake(
            "domain",
            "signs another version of the token's EIP-712 domain",
            _for_another_version,
            _domain,
        ),
        Mistake(
            "network",
            "pays on another network",
            _on_another_chain,
            lambda draft: f"network {draft.named.name}, chain id {draft.named.chain_id}",
        ),
        Mistake(
            "asset",
            "pays with another token",
            lambda draft: draft.paying(asset=Address(draft.auth.from_)),
            lambda draft: f"asset {checksum(draft.named.asset)}",
        ),
        Mistake(
            "funds",
            "pays from a new account, which has no tokens",
            _from_empty_account,
            lambda draft: f"from {checksum(draft.auth.from_)}",
        ),
        Mistake(
            "resource",
            "names another resource",
            lambda draft: replace(draft, resource=_elsewhere(draft.resource)),
            lambda draft: f"resource {draft.resource}",
            (Dialect.TWO_STEPS, Dialect.V2),
        ),
        Mistake(
            "payment-id",
            "settles a payment id that nobody has issued",
            lambda draft: replace(draft, payment_id="pay_" + "x402sim" * 4),
            lambda draft: f"paymentId {draft.payment_id}",
            (Dialect.TWO_STEPS,),
        ),
        Mistake(
            "replay",
            "pays a second 402 with an authorization that has paid the first",
            lambda draft: draft,
            lambda draft: f"nonce {to_hex(draft.auth.nonce)}",
        ),
    )
}
"""By name. For `replay`, the draft must hold an authorization that was used already."""


def _elsewhere(resource: str) -> str:
    return str(httpx.URL(resource).copy_with(path=_ELSEWHERE)) if "://" in resource else _ELSEWHERE


# --- from a request to a draft and back ---------------------------------------------------


def draft_of(request: httpx.Request, wallet: Wallet, network: Network, now_s: int) -> Draft:
    """Return the draft of a paying request that this wallet has signed."""
    dialect = paid_in(request) or Dialect.TWO_STEPS
    if (version := dialect.version) is None:
        body: dict[str, Any] = decode(request.content, dict[str, Any])
        auth = read_header(body["paymentHeader"]).authorization
        resource, payment_id = body["paymentRequirements"]["resource"], body["paymentId"]
    else:
        text = request.headers[x402.PAYMENT_HEADERS[version]]
        fields: dict[str, Any] = decode(x402.from_base64(text), dict[str, Any])
        if is_permit2(fields.get("payload")):
            sent = permit2_payment_of(x402.from_base64(text))
            message, _ = message_of(sent)
            resource = sent.resource.url if sent.resource else ""
            networks, terms = (network, network), terms_of(message)
            return Draft(dialect, terms, wallet, *networks, resource, "", now_s, by_permit2=True)
        payment = x402.read_payment(version, text)
        auth, payment_id = payment.signed.authorization, ""
        resource = payment.resource.url if payment.resource else ""
    return Draft(dialect, auth, wallet, network, network, resource, payment_id, now_s)


def paid_in(request: httpx.Request) -> Dialect | None:
    """Return the dialect in which a request pays; None for an unpaid request."""
    for dialect in (Dialect.V2, Dialect.V1):
        if dialect.version and x402.PAYMENT_HEADERS[dialect.version] in request.headers:
            return dialect
    is_settled = request.url.path == PAY_PATH and PAYMENT_ID_HEADER not in request.headers
    return Dialect.TWO_STEPS if is_settled else None


def request_of(draft: Draft, request: httpx.Request) -> httpx.Request:
    """Return the request with the payment of a draft, newly signed, instead of its own."""
    signature = draft.signer.sign(draft.auth, draft.signed_for.domain)
    headers = httpx.Headers(request.headers)
    if (version := draft.dialect.version) is None:
        body: dict[str, Any] = decode(request.content, dict[str, Any])
        spelling = spelling_of(body["paymentHeader"])
        header = encode_header(draft.auth, signature, draft.named, spelling)
        wanted, changes = body["paymentRequirements"], {"resource": draft.resource}
        content = encode(settlement(draft.payment_id, header, wanted, changes))
    else:
        name = x402.PAYMENT_HEADERS[version]
        fields: dict[str, Any] = decode(x402.from_base64(headers[name]), dict[str, Any])
        fields["payload"] = x402.exact_payload(draft.auth, signature)
        fields.pop("extensions", None)  # they name the payment without the mistake
        terms = fields if version == 1 else fields["accepted"]
        terms["network"] = draft.dialect.name_of(draft.named)
        if version == 2:
            terms["asset"] = checksum(draft.named.asset)
        if "resource" in fields:
            fields["resource"]["url"] = draft.resource
        headers[name], content = x402.to_base64(fields), request.content
    headers.pop("Content-Length", None)  # httpx counts anew
    return httpx.Request(
        request.method, request.url, headers=headers, content=content, extensions=request.extensions
    )


Change = Callable[[httpx.Request], httpx.Request]


@dataclass(kw_only=True, slots=True)
class ObservedAuth(FlowAuth):
    """Sends a request, chooses a payer by the 402, lets it pay, and reports each exchange."""

    choose: Callable[[httpx.Response], FlowAuth]
    """Returns the payer for a 402; raises `PaymentFailed` if no payer can pay."""
    on_request: Callable[[httpx.Request], None] = lambda _: None
    """Called with each request before it is sent."""
    on_answer: Callable[[httpx.Request, httpx.Response], None]
    """Called with each sent request and its answer, whose body may not be read yet."""
    limits: Limits
    change: Change | None = None
    """Changes the first request that pays; the exchange ends with its answer."""

    def exchange(self, request: httpx.Request) -> Flow:
        """Yield the steps of one exchange, and return its last answer."""
        unpaid = yield from self._observed(Send(request))
        if unpaid.status_code != 402:
            return unpaid
        flow = self.choose(unpaid).exchange(request)
        try:
            step: Step = next(flow)
            if isinstance(step, Send) and step.request is request:
                step = flow.send(unpaid)  # the unpaid request was sent already
            while True:
                if not isinstance(step, Send):
                    yield step
                    step = flow.send(None)
                    continue
                change = self.change if paid_in(step.request) else None
                if change is not None:
                    step = Send(change(step.request), step.is_own)
                try:
                    answer = yield from self._observed(step)
                except (httpx.HTTPError, PaymentFailed) as error:
                    step = flow.throw(error)
                    continue
                if change is not None:
                    return answer
                step = flow.send(answer)
        except StopIteration as done:
            last: httpx.Response = done.value
            return last
        finally:
            flow.close()

    def _observed(self, step: Send) -> Flow:
        self.on_request(sent := copy_of(step.request))
        answer = yield from send(step)
        self.on_answer(sent, answer)
        return answer


def copy_of(request: httpx.Request) -> httpx.Request:
    """Return a copy of a request: a payer adds a proof to the request that is sent."""
    method, url, headers = request.method, request.url, request.headers
    return httpx.Request(method, url, headers=headers, content=request.content)
