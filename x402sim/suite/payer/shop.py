"""The shop of a case: offers, settles by a real facilitator, and serves, as the story says.

An honest shop settles each authorization once, and answers the same authorization again with the
same answer, so that a payer can get a lost answer back. A `Story` is data: the differences from an
honest shop. The dialects are x402 version 1, version 2, the two steps of the
specification, its sessions, MCP tools, and version 2 by Permit2: `exact`, and `upto`.

The shop searches every request of a payer, to any host, for authorizations, messages of Permit2 and
permits of EIP-2612. An unused authorization is *exposed*: its holder can still take the money. An
authorization for another token or chain loses money there; here its amount counts. The shop
notes its offers and compares each payment with them.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

from msgspec.structs import replace as changed

from x402sim.protocol import x402
from x402sim.protocol.crypto import BadSignature, checksum, parse_address, recover, to_hex
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    Authorization,
    Domain,
    Permit,
    permit_digest,
    transfer_digest,
)
from x402sim.protocol.messages import BadMessage, decoded
from x402sim.protocol.money import to_base, to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import Permit2Authorization, permit2_digest, signer_of
from x402sim.protocol.permit2_payments import (
    ALLOWANCE,
    PROXIES,
    UPTO,
    Permit2Fields,
    Permit2Payload,
    PermittedFields,
    WitnessFields,
    authorization_of,
    terms_of,
)
from x402sim.suite.dialect import Dialect
from x402sim.suite.wire import How, Reply, Request, as_json

_FIELDS = ("from", "to", "value", "validAfter", "validBefore", "nonce")
_OF_PERMIT = ("owner", "spender", "value", "nonce", "deadline")
_OF_SPONSORED = ("from", "spender", "amount", "nonce", "deadline")
"""A permit as the extension eip2612GasSponsoring writes it."""
_OF_PERMIT2 = ("permitted", "from", "spender", "nonce", "deadline", "witness")
MOST_DEPTH = 12
"""How deep in JSON a payment is searched for."""


class Lets(StrEnum):
    """The function of the token, or of Permit2, that a signature allows."""

    TRANSFER = "transferWithAuthorization"
    RECEIVE = "receiveWithAuthorization"
    PERMIT = "permit"
    WITNESS = "permitWitnessTransferFrom"


def lets_of(dialect: Dialect) -> Lets:
    """Return the function that a payment's signature allows."""
    return Lets.WITNESS if dialect.by_permit2 else Lets.TRANSFER


@dataclass(frozen=True, slots=True)
class Signed:
    """An authorization, its signature, and the domain signed for: None if no domain fits.

    A permit counts as an authorization from the owner to the spender until the deadline; a message
    of Permit2 as one to the payee, or to a spender that is no x402 proxy.
    """

    auth: Authorization
    signature: bytes
    domain: Domain | None
    lets: Lets = Lets.TRANSFER
    permit2: Permit2Authorization | None = None

    @property
    def by(self) -> str:
        """The account whose money the signature moves."""
        return checksum(self.auth.from_)

    def summary(self, decimals: int, token: Domain) -> str:
        """Return the authorization in a line; another token than `token` is named."""
        value = self.auth.value
        amount = to_decimal(value, decimals) if value < 10**30 else "10^30 base units or more"
        ends = f"until {self.auth.valid_before}"
        by = "" if self.lets is Lets.TRANSFER else f" by {self.lets}"
        nonce = to_hex(self.auth.nonce)[:12]
        if self.domain is not None and is_elsewhere(self, token):
            contract = checksum(self.domain.verifying_contract)
            by += f" of token {contract} on chain {self.domain.chain_id}"
        return f"{amount} to {checksum(self.auth.to)}{by}, nonce {nonce}…, {ends}"


def payments_in(request: Request) -> list[Any]:
    """Return the possible payments in a request: JSON that holds an authorization."""
    found = [value for value in map(_json_of, request.headers.values()) if _holds(value)]
    if _holds(body := request.json):
        found.append(body)
    return found


def _json_of(text: str) -> Any:
    """Return the JSON in a header's text, in base64, hex or plain; None without JSON."""
    text = text.strip()
    if len(text) < 20:
        return None
    with suppress(ValueError, binascii.Error):
        if text[:2] in ("0x", "0X"):
            return decoded(bytes.fromhex(text[2:]))
        if text[0] == "{":
            return decoded(text.encode())
        padded = text.replace("-", "+").replace("_", "/")
        return decoded(base64.b64decode(padded + "=" * (-len(padded) % 4)))
    return None


def _holds(value: Any) -> bool:
    return next(authorizations_in(value), None) is not None


def authorizations_in(value: Any, depth: int = 0) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the fields of each authorization or permit in JSON, and its signature."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, str) and depth and len(value) > 100:  # a header in a body, or JSON in text
        if isinstance(inner := _json_of(value), dict | list):
            yield from authorizations_in(inner, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from authorizations_in(each, depth + 1)
    elif isinstance(value, dict):
        if _is_signable(value):
            yield value, _signature_of(value)
        for inner in value.values():
            if _is_signable(inner) and not _signature_of(inner):  # the signature is a sibling
                yield inner, _signature_of(value)
            else:
                yield from authorizations_in(inner, depth + 1)


def _is_signable(value: Any) -> bool:
    return isinstance(value, dict) and any(
        all(name in value for name in names)
        for names in (_FIELDS, _OF_PERMIT, _OF_SPONSORED, _OF_PERMIT2)
    )


def _signature_of(value: Mapping[str, Any]) -> str:
    """Return a signature in hex, from one field or from r, s and v; empty without a signature."""
    if "signature" in value:
        return str(value["signature"])
    with suppress(KeyError, ValueError, TypeError):
        r, s = (str(value[name]).removeprefix("0x").rjust(64, "0") for name in ("r", "s"))
        return f"{r}{s}{int(str(value['v']), 0):02x}"
    return ""


def read(fields: dict[str, Any], signature: str, domains: Iterable[Domain]) -> Signed | None:
    """Read an authorization, permit or message of Permit2, and find the domain signed for.

    Returns None for unreadable fields.
    """
    if "permitted" in fields:
        return _read_permit2(fields, signature, domains)
    is_permit = "spender" in fields
    of_permit = _OF_PERMIT if "owner" in fields else _OF_SPONSORED
    names = (*of_permit[:3], "", "deadline") if is_permit else _FIELDS[:5]
    payer, payee, value, begins, ends = (fields.get(name, 0) for name in names)
    try:
        nonce = str(fields["nonce"])
        auth = Authorization(
            parse_address(str(payer)),
            parse_address(str(payee)),
            int(str(value), 0 if is_permit else 10),
            int(str(begins)),
            int(str(ends), 0 if is_permit else 10),
            int(nonce, 0).to_bytes(32)
            if is_permit
            else bytes.fromhex(nonce.removeprefix("0x")).rjust(32, b"\0")[:32],
        )
        raw = bytes.fromhex(signature.removeprefix("0x"))
    except (ValueError, OverflowError):
        return None
    small = all(0 <= each < 2**256 for each in (auth.value, auth.valid_after, auth.valid_before))
    if not small:
        return None
    kinds = (Lets.PERMIT,) if is_permit else (Lets.TRANSFER, Lets.RECEIVE)
    for domain in domains:
        for lets in kinds:
            with suppress(BadSignature, ValueError):
                if recover(_digest(auth, domain, lets), raw) == auth.from_:
                    return Signed(auth, raw, domain, lets)
    return Signed(auth, raw, None, kinds[0])


def _read_permit2(
    fields: dict[str, Any], signature: str, domains: Iterable[Domain]
) -> Signed | None:
    """Read a message of Permit2; the domain is that of the token on the chain signed for."""
    try:
        permitted, witness = fields["permitted"], fields["witness"]
        by = witness.get("facilitator")
        written = Permit2Fields(
            permitted=PermittedFields(token=permitted["token"], amount=str(permitted["amount"])),
            witness=WitnessFields(
                to=witness["to"], valid_after=str(witness["validAfter"]), facilitator=by
            ),
            from_=fields["from"],
            spender=fields["spender"],
            nonce=str(fields["nonce"]),
            deadline=str(fields["deadline"]),
        )
        scheme = x402.SCHEME if by is None else UPTO
        payload = Permit2Payload(signature=signature, permit2_authorization=written)
        message, raw = authorization_of(payload, scheme)
    except (AttributeError, KeyError, TypeError, BadMessage):
        return None
    terms = terms_of(message)
    if message.spender != PROXIES[scheme]:
        terms = changed(terms, to=message.spender)
    known = {(each.chain_id, each.verifying_contract): each for each in reversed([*domains])}
    for chain_id in dict.fromkeys(chain_id for chain_id, _ in reversed(known)):
        with suppress(BadSignature):
            if signer_of(permit2_digest(message, chain_id), raw) == message.from_:
                other = Domain("", "", chain_id, message.token)
                domain = known.get((chain_id, message.token), other)
                return Signed(terms, raw, domain, Lets.WITNESS, message)
    return Signed(terms, raw, None, Lets.WITNESS, message)


def _digest(auth: Authorization, domain: Domain, lets: Lets) -> bytes:
    match lets:
        case Lets.TRANSFER:
            return transfer_digest(auth, domain)
        case Lets.RECEIVE:
            return transfer_digest(auth, domain, RECEIVE_TYPEHASH)
        case Lets.PERMIT:
            nonce = int.from_bytes(auth.nonce)
            permit = Permit(auth.from_, auth.to, auth.value, nonce, auth.valid_before)
            return permit_digest(permit, domain)
        case Lets.WITNESS:
            raise ValueError("a message of Permit2 is signed for no token's domain")


def is_usable(signed: Signed, token: Domain, now_s: float) -> bool:
    """Tell whether the token would still accept the authorization, if its nonce is unused."""
    return signed.domain == token and signed.auth.valid_before > now_s


def is_elsewhere(signed: Signed, token: Domain) -> bool:
    """Tell whether the authorization moves another token, or the token of another chain."""
    other = signed.domain
    return other is not None and (other.chain_id, other.verifying_contract) != (
        token.chain_id,
        token.verifying_contract,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offer of a 402; the amount as written."""

    amount: str
    pay_to: str
    asset: str
    network: str
    scheme: str = "exact"
    timeout_s: int = 300
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> int:
        """The amount, rounded down; 0 if unreadable."""
        with suppress(InvalidOperation, OverflowError, ValueError):
            return max(0, int(Decimal(self.amount)))
        return 0


@dataclass(frozen=True, slots=True)
class Settled:
    """The end of an authorization at the shop: a transaction, or the reason for none."""

    transaction: str
    reason: str = ""
    payment_id: str = ""
    amount: int = 0
    """The paid amount, in base units."""


Settle = Callable[[Signed], Awaitable[Settled]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """The answer to a paying request; `settles`: the payment is settled first.

    `reply` gets the shop and the right answer. `at_goods` strikes at the request for the goods, in
    flows that pay before: two steps and sessions.
    """

    settles: bool
    reply: Callable[["Shop", Reply], Reply]
    at_goods: bool = False


Change = Callable[["Shop", Request], Reply | None]


def _nothing(_: "Shop", __: Request) -> Reply | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The differences of a shop from an honest shop.

    offers
        The offers of a 402, given the right offer; called for every 402.
    strikes
        Answers to the first paying requests; later requests are answered rightly.
    first, paying, elsewhere
        A wrong answer to a request without payment, to a request with a payment, and at another
        host; None leaves the right answer.
    error, extensions, resource, description
        Further fields of the 402.
    both_versions
        Whether the 402 offers version 1 in its body beside version 2 in its header.
    urls
        The number of things sold, each at its own URL; the task is to buy all of them.
    gathers_s
        Seconds for which unpaid requests wait until every URL was requested (a single URL:
        twice), so that a payer that requests all URLs at once gets all offers at once.
    together
        Whether the payer is first started twice at once, with one folder.
    rests_s
        Seconds that the judge waits after the first start.
    debits
        The debit of a session for each request, in prices.
    null_schema
        Whether an offer of version 1 has `"outputSchema": null`.
    as_events
        Whether a tool is answered by a stream of events, as MCP allows.
    takes_anything
        Whether the shop settles every authorization to its account, as a thief would.
    skew_s
        By how many seconds the clock of chain and facilitator is ahead.
    is_allowed
        Whether the wallet has allowed Permit2 to take the cap; asked only where payments are by
        Permit2. The shop answers 412 for a missing allowance.
    """

    offers: Callable[["Shop", Offer], Sequence[Offer]] = lambda _, right: [right]
    strikes: tuple[Strike, ...] = ()
    first: Change = _nothing
    paying: Change = _nothing
    elsewhere: Change = _nothing
    error: str = "payment is required"
    extensions: Callable[["Shop"], Mapping[str, Any]] = lambda _: {}
    resource: Callable[["Shop", str], str] = lambda _, url: url
    description: str = "one report"
    both_versions: bool = False
    takes_anything: bool = False
    urls: int = 1
    gathers_s: float = 0
    together: bool = False
    rests_s: float = 0
    debits: int = 1
    as_events: bool = False
    null_schema: bool = False
    skew_s: float = 0
    is_allowed: bool = True


PAY_PATH, CREATE_PATH, RECORDS = "/api/pay", "/api/sessions/create", "/api/payments/"
TOOL = "report"
EVENTS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
PROGRESS = (
    b"retry: 1000\n\n: the tool works\n\n"
    b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message",'
    b'"params":{"level":"info","data":"working"}}\n\n'
)
"""The beginning of a stream of events."""
GOODS_PATH = "/report"
PAYMENT_ID_HEADER, SESSION_ID_HEADER = "x-payment-id", "x-session-id"
OTHER_TOKEN = "0x1111111111111111111111111111111111111111"  # noqa: S105 - an address
"""A token that no task names."""


@dataclass(slots=True, kw_only=True, eq=False)
class Shop:
    """A running shop: requests, and payments."""

    flow: Dialect
    story: Story
    network: Network
    right: Offer
    goods: str
    """A word that only a served payer knows."""
    origin: str
    other: str
    """The origin of another host, which may not be paid."""
    thief: str
    """An account that may not be paid."""
    settle: Settle
    offered: list[Offer] = field(default_factory=list)
    """The offers made until now."""
    refused: str = ""
    """Why the shop refused the last refused payment; empty without a refusal."""
    demanded: int = 0
    """How often the shop asked for a payment."""
    paying: int = 0
    """How many requests carried a payment."""
    served: int = 0
    """How often the goods went out as a whole."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a settlement: the same payment may come twice at once."""
    paid: dict[bytes, Settled] = field(default_factory=dict)
    """The end of each settled nonce."""
    by_id: dict[str, Settled] = field(default_factory=dict)
    """The same by payment id, in two steps."""
    struck: int = 0
    """How many of the story's strikes have happened."""
    ids: dict[str, str] = field(default_factory=dict)
    """The payload of each id of the extension payment-identifier."""
    sessions: dict[str, int] = field(default_factory=dict)
    """The rest of each session's deposit, in base units."""
    gathered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once every URL was requested."""
    requested: list[str] = field(default_factory=list)
    """The paths requested without payment."""
    buys: dict[bytes | str, str] = field(default_factory=dict)
    """The path that each nonce, or payment id, buys, where several things are sold."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the goods."""
        if self.story.urls == 1:
            return (self.origin + ("/mcp" if self.flow is Dialect.MCP else GOODS_PATH),)
        numbers = range(1, self.story.urls + 1)
        return tuple(f"{self.origin}{GOODS_PATH}/{number}" for number in numbers)

    @property
    def url(self) -> str:
        """The URL of the first of the goods."""
        return self.urls[0]

    @property
    def all_goods(self) -> tuple[str, ...]:
        """The words that a payer knows once it was served everything."""
        if self.story.urls == 1:
            return (self.goods,)
        return tuple(f"{self.goods}.{number}" for number in range(1, self.story.urls + 1))

    def _at(self, path: str) -> str:
        if self.story.urls == 1:
            return self.goods
        return f"{self.goods}.{path.rpartition('/')[2]}"

    @property
    def other_chain(self) -> str:
        """Another chain than the task's, as the dialect names it."""
        return "eip155:8453" if self.flow.version == 2 else "base"

    # --- answers -------------------------------------------------------------------------

    async def answer(self, request: Request, found: Sequence[Signed]) -> Reply:
        """Answer a request that carries these authorizations."""
        if found and (other := self.story.paying(self, request)) is not None:
            self.paying += 1
            return other
        if not found and (other := self.story.first(self, request)) is not None:
            return other
        if self.story.gathers_s and not found and b'"initialize"' not in request.body:
            await self._gather(request)
        if self.flow is Dialect.MCP:
            reply = await self._tool(request, found)
            takes = "text/event-stream" in request.headers.get("accept", "")
            return in_events(reply) if self.story.as_events and takes else reply
        if self.flow.is_ours:
            return await self._ours(request, found)
        if not found or not self._is_for(found[0].auth.nonce, request.path):
            return self.ask(path=request.path)
        return await self._pay(found[0], lambda paid: self.serve(paid, request.path))

    def _is_for(self, payment: bytes | str, path: str) -> bool:
        """Tell whether a payment buys the goods at a path: the first request with the payment binds
        it to a path."""
        return self.story.urls == 1 or self.buys.setdefault(payment, path) == path

    async def _gather(self, request: Request) -> None:
        self.requested.append(request.path)
        urls = self.story.urls
        if (len(self.requested) > 1) if urls == 1 else (len({*self.requested}) >= urls):
            self.gathered.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.story.gathers_s):
                await self.gathered.wait()

    async def _pay(self, signed: Signed, right: Callable[[Settled], Reply]) -> Reply:
        """Answer a payment as the story's next strike says, or by `right` without a strike."""
        self.paying += 1
        strikes = [each for each in self.story.strikes if not each.at_goods]
        if self.struck < len(strikes):
            strike = strikes[self.struck]
            self.struck += 1
            paid = await self._settled(signed) if strike.settles else Settled("0x" + "ab" * 32)
            served = self.served
            rightly = self.ask(paid.reason, paid) if paid.reason else right(paid)
            reply = strike.reply(self, rightly)
            self.served = (
                served if reply.how is not How.WHOLE or not self._has(reply) else self.served
            )
            return reply
        paid = await self._settled(signed)
        return self.ask(paid.reason, paid) if paid.reason else right(paid)

    def _has(self, reply: Reply) -> bool:
        return self.goods.encode() in reply.body

    async def _settled(self, signed: Signed) -> Settled:
        nonce = signed.auth.nonce
        async with self.turn:
            if nonce not in self.paid:
                if not (self.story.takes_anything or self._matches(signed)):
                    self.refused = "it is for none of the offers"
                    return Settled("", "invalid_payment_requirements")
                paid = await self.settle(signed)
                if paid.reason:
                    self.refused = paid.reason
                    return paid
                self.paid[nonce] = replace(paid, amount=paid.amount or signed.auth.value)
        return self.paid[nonce]

    def _matches(self, signed: Signed) -> bool:
        """Tell whether an authorization pays an offer's price or more: a shop accepts both."""
        to, value = "0x" + signed.auth.to.hex(), signed.auth.value
        if self.flow is Dialect.SESSION:  # the payer names its deposit
            return to == self.right.pay_to.lower()
        return any(
            each.pay_to.lower() == to and each.amount.isdecimal() and value >= int(each.amount)
            for each in self.offered
        )

    # --- the goods -----------------------------------------------------------------------

    def serve(self, paid: Settled, path: str = "") -> Reply:
        """Return the goods, with the receipt of a payment."""
        self.served += 1
        headers = {}
        if paid.transaction and not self.flow.is_ours:
            name = self.flow.response_header
            used = {"amount": str(paid.amount)} if self.flow is Dialect.UPTO else {}
            receipt = self.receipt(transaction=paid.transaction, success=True, **used)
            headers[name] = in_base64(receipt)
        return as_json({"report": self._at(path)}, headers=headers)

    def receipt(self, **fields: Any) -> dict[str, Any]:
        """Return the receipt of the standard, with these fields."""
        return {"network": x402.network_name(self.flow.version, self.network), **fields}

    # --- the 402 -------------------------------------------------------------------------

    def offers(self, url: str = "") -> list[dict[str, Any]]:
        """Return the offers at a URL, by default the first, as the dialect writes offers."""
        return [self._written(each, url=url) for each in self.story.offers(self, self.right)]

    def _written(
        self, offer: Offer, version: x402.Version | None = None, url: str = ""
    ) -> dict[str, Any]:
        version = version or self.flow.version
        if offer not in self.offered:
            self.offered.append(offer)
        fields: dict[str, Any] = {
            "scheme": offer.scheme,
            "network": offer.network,
            "payTo": offer.pay_to,
            "asset": offer.asset,
            "maxTimeoutSeconds": offer.timeout_s,
        }
        if version == 2:
            return {**fields, "amount": offer.amount, "extra": dict(offer.extra)}
        fields["maxAmountRequired"] = offer.amount
        if self.flow.is_ours:
            return {**fields, "resource": GOODS_PATH, "description": self.story.description}
        return {
            **fields,
            "resource": self.story.resource(self, url or self.url),
            "description": self.story.description,
            "mimeType": "application/json",
            **({"outputSchema": None} if self.story.null_schema else {}),
            "extra": dict(offer.extra),
        }

    def required(self, error: str = "", url: str = "") -> dict[str, Any]:
        """Return the body of the standard's 402."""
        body: dict[str, Any] = {
            "x402Version": self.flow.version,
            "error": error or self.story.error,
        }
        body["accepts"] = self.offers(url)
        if self.flow.version == 2:
            url = f"mcp://tool/{TOOL}" if self.flow is Dialect.MCP else url or self.url
            body["resource"] = {
                "url": self.story.resource(self, url),
                "description": self.story.description,
                "mimeType": "application/json",
            }
            if extensions := self.story.extensions(self):
                body["extensions"] = dict(extensions)
        return body

    def ask(self, error: str = "", failed: Settled | None = None, path: str = "") -> Reply:
        """Return the 402 at a path, with the end of a `failed` payment."""
        self.demanded += 1
        if self.flow.is_ours:
            return self._ask_in_two_steps(path or GOODS_PATH, self.offers()[0])
        required, headers = self.required(error, self.origin + path if path else ""), {}
        if failed is not None:
            result = self.receipt(
                success=False, transaction=failed.transaction, errorReason=error or failed.reason
            )
            headers[self.flow.response_header] = in_base64(result)
        if self.flow is Dialect.V1:
            return as_json(required, 402, headers)
        headers[x402.REQUIRED_HEADER] = in_base64(required)
        body: Any = {}
        if self.story.both_versions:
            old = replace(self.right, network=self.network.name)
            body = {"x402Version": 1, "error": error, "accepts": [self._written(old, 1)]}
        return as_json(body, 412 if error == ALLOWANCE else 402, headers)

    # --- two steps, and sessions ---------------------------------------------------------

    def _ask_in_two_steps(self, path: str, offer: dict[str, Any]) -> Reply:
        payment_id = f"pay_{self.goods[:8]}{self.demanded:08d}"
        required = {**offer, "resource": path}
        return as_json(
            {
                "error": "Payment Required",
                "paymentId": payment_id,
                "paymentRequirements": required,
                "message": self.story.error,
                "network": self.network.name,
            },
            402,
        )

    async def _ours(self, request: Request, found: Sequence[Signed]) -> Reply:
        if request.path == PAY_PATH and found:
            body = request.json if isinstance(request.json, dict) else {}
            payment_id = str(body.get("paymentId"))

            def receipt(paid: Settled) -> Reply:
                self.by_id[payment_id] = replace(paid, payment_id=payment_id)
                success = {"success": True, "paymentId": payment_id}
                return as_json(
                    {**success, "txHash": paid.transaction, "timestamp": 1_700_000_000_000}
                )

            return await self._pay_in_two_steps(found[0], receipt, payment_id)
        if request.path.startswith(RECORDS):
            return self._record(request.path.removeprefix(RECORDS))
        shown = self.by_id.get(request.headers.get(PAYMENT_ID_HEADER, ""))
        if request.path == CREATE_PATH:
            return self._create(request, shown)
        session = request.headers.get(SESSION_ID_HEADER, "")
        if session in self.sessions:
            price = int(self.right.amount)
            if self.sessions[session] < price:
                return self.ask("the session has not enough left")
            self.sessions[session] -= price * self.story.debits
            return self._struck_at_goods(self.serve(Settled(""), request.path))
        if shown is not None and self._is_for(shown.payment_id, request.path):
            return self._struck_at_goods(self.serve(shown, request.path))
        return self.ask(path=request.path)

    async def _pay_in_two_steps(
        self, signed: Signed, receipt: Callable[[Settled], Reply], payment_id: str
    ) -> Reply:
        if signed.auth.nonce in self.paid:
            self.by_id[payment_id] = replace(self.paid[signed.auth.nonce], payment_id=payment_id)
        reply = await self._pay(signed, receipt)
        if signed.auth.nonce in self.paid:  # the shop knows of the payment, whatever its answer
            self.by_id[payment_id] = replace(self.paid[signed.auth.nonce], payment_id=payment_id)
        if reply.status == 402:
            refused = as_json({"error": "Payment failed", "reason": "refused"}, 402)
            return replace(refused, how=reply.how, after_s=reply.after_s)
        return reply

    def _struck_at_goods(self, right: Reply) -> Reply:
        """Answer a paid request for goods, as the story says."""
        strikes = [each for each in self.story.strikes if each.at_goods]
        if self.struck >= len(strikes):
            return right
        self.struck += 1
        reply = strikes[self.struck - 1].reply(self, right)
        if reply.how is not How.WHOLE or not self._has(reply):
            self.served -= self._has(right)
        return reply

    def _record(self, payment_id: str) -> Reply:
        paid = self.by_id.get(payment_id)
        if paid is None:
            return as_json({"error": "Payment not found"}, 404)
        return as_json({"payment_id": payment_id, "status": "settled", "tx_hash": paid.transaction})

    def _create(self, request: Request, shown: Settled | None) -> Reply:
        body = request.json if isinstance(request.json, dict) else {}
        try:
            deposit = to_base(str(body.get("maxSpend")), self.network.decimals)
        except ValueError:
            return as_json({"error": "Invalid maxSpend"}, 400)
        if shown is None:
            self.demanded += 1
            offer = self._written(replace(self.right, amount=str(deposit)))
            return self._ask_in_two_steps(CREATE_PATH, offer)
        session, deposited = f"session_{shown.payment_id}", str(shown.amount)
        self.sessions.setdefault(session, shown.amount)
        view = {"sessionId": session, "deposited": deposited, "released": "0"}
        view |= {"remaining": deposited, "status": "active"}
        return self._struck_at_goods(as_json({**view, "expiresAt": 2**41}, 201))

    # --- MCP -----------------------------------------------------------------------------

    async def _tool(self, request: Request, found: Sequence[Signed]) -> Reply:
        """Answer JSON-RPC of MCP over streamable HTTP, without a session."""
        sent = request.json
        if request.method != "POST" or not isinstance(sent, dict):
            return as_json({"error": "method not allowed"}, 405)
        number, method = sent.get("id"), sent.get("method")
        given = sent.get("params")
        params: dict[str, Any] = given if isinstance(given, dict) else {}

        def result(value: Mapping[str, Any]) -> Reply:
            return as_json({"jsonrpc": "2.0", "id": number, "result": dict(value)})

        match method:
            case "initialize":
                version = params.get("protocolVersion", "2025-06-18")
                about = {"name": "shop", "version": "1"}
                can = {"tools": {"listChanged": False}}
                return result(
                    {"protocolVersion": version, "capabilities": can, "serverInfo": about}
                )
            case "ping":
                return result({})
            case "tools/list":
                schema = {"type": "object", "properties": {}}
                tool = {"name": TOOL, "description": "A report, for a price", "inputSchema": schema}
                return result({"tools": [tool]})
            case "tools/call":
                if not found:
                    return result(self._tool_asks())
                reply = await self._pay(found[0], lambda paid: result(self._tool_serves(paid)))
                if reply.status == 402:  # MCP answers a 402 as a tool's result
                    offer = x402.json_in(reply.headers.get(x402.REQUIRED_HEADER)) or {}
                    return result(self._tool_asks(str(offer.get("error") or "")))
                return reply
            case _ if number is None:
                return Reply(status=202)
            case _:
                error = {"code": -32601, "message": "Method not found"}
                return as_json({"jsonrpc": "2.0", "id": number, "error": error})

    def _tool_asks(self, error: str = "") -> dict[str, Any]:
        self.demanded += 1
        required = self.required(error)
        text = {"type": "text", "text": json.dumps(required)}
        return {"isError": True, "structuredContent": required, "content": [text]}

    def _tool_serves(self, paid: Settled) -> dict[str, Any]:
        self.served += 1
        text = {"type": "text", "text": json.dumps({"report": self.goods})}
        receipt = self.receipt(transaction=paid.transaction, success=True)
        return {"content": [text], "_meta": {"x402/payment-response": receipt}}


def in_events(reply: Reply) -> Reply:
    """Return an answer of JSON-RPC as an event stream: a progress message, then the answer."""
    if reply.status != 200 or reply.headers.get("Content-Type") != "application/json":
        return reply
    body = PROGRESS + b"event: message\nid: 1\ndata: " + reply.body + b"\n\n"
    return replace(reply, headers=EVENTS, body=body)


def in_base64(value: Any) -> str:
    """Return a value as the text of a header."""
    return base64.b64encode(json.dumps(value).encode()).decode()
