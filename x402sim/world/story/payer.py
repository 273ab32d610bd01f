"""A payer in a story: it requests, signs and pays, correctly or with chosen defects."""

from typing import Any, Protocol

import httpx
import msgspec
from coincurve import PrivateKey

from x402sim.clock import Clock
from x402sim.events import ServiceName
from x402sim.payer.policies import PayerPolicy
from x402sim.payer.shops import Choose, Shop
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import from_hex, parse_address, sign, to_hex
from x402sim.protocol.eip3009 import RECEIVE_TYPEHASH, Authorization, Domain, transfer_digest
from x402sim.protocol.header import Spelling, authorization_of, decode_header, encode_header
from x402sim.protocol.messages import (
    BadMessage,
    PaymentRequirements,
    SessionRequest,
    SettlementRequest,
    decode,
    encode,
    wire_body,
)
from x402sim.protocol.money import to_base
from x402sim.protocol.networks import Network
from x402sim.rng import Stream
from x402sim.world.control.messages import Sent
from x402sim.world.story import shopping
from x402sim.world.story.answers import Answer as Answer
from x402sim.world.story.orders import Account, Shopper

QUOTE, SESSIONS = "/api/perp/quote", "/api/sessions/create"
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


class PayerWorld(Protocol):
    """The part of `LiveWorld` that a payer uses."""

    last_exchange: int
    """The number of the newest exchange, which the payer updates."""

    @property
    def clock(self) -> Clock:
        """The true time of the world."""

    @property
    def network(self) -> Network:
        """The network whose token pays."""

    async def balance(self, address: str) -> int:
        """Return an address's balance on the chain, in base units."""

    async def transact(self, sender: str, data: str) -> Sent:
        """Send a call of the token from an account."""

    @property
    def services(self) -> tuple[ServiceName, ...]:
        """The names of the services."""

    def rng(self, name: str) -> Stream:
        """Return a random stream for the story."""

    def client(self, payer: "Payer", *, to: ServiceName = "service") -> httpx.AsyncClient:
        """Return a payer's HTTP client of a service."""


class Payer:
    """One payer: a name, a wallet, and an HTTP client of a service."""

    def __init__(
        self,
        world: PayerWorld,
        name: str,
        wallet: Wallet,
        http: httpx.AsyncClient,
        account: Account | None = None,
        tour: "shopping.Tour[Payer] | None" = None,
    ) -> None:
        self.world, self.name, self.wallet = world, name, wallet
        self.http = http
        self._account = account or Account(PayerPolicy())
        self._shopper = Shopper(self, self._account)
        self._tour: shopping.Tour[Payer] = tour or shopping.Tour()
        self.skew_s = 0.0
        """Seconds by which this payer's clock is ahead of the true time."""

    @property
    def address(self) -> str:
        """The payer's address."""
        return self.wallet.address

    def at(self, service: ServiceName) -> "Payer":
        """Return this payer at another service of the world: `await alice.at(other).ask()`."""
        there = self._tour.clients.get(service)
        if there is None:
            http = self.world.client(self, to=service)
            there = Payer(self.world, self.name, self.wallet, http, self._account, self._tour)
            self._tour.clients[service] = there
        there.skew_s = self.skew_s
        return there

    async def shops(self) -> list[Shop]:
        """Ask every service for its agents; return those that answer, in an order that is drawn."""
        if self._tour.order is None:
            self._tour.order = self.world.rng(f"shops of {self.name}")
        buyers: dict[ServiceName, shopping.Buyer] = {
            name: self.at(name) for name in self.world.services
        }
        return await shopping.look_around(buyers, self._tour.order)

    async def choose(self, rule: Choose) -> "Payer":
        """Return this payer at the service that a rule chooses: `await alice.choose(cheapest)`.

        Raises `PaymentFailed` if no service lists an agent, `ValueError` for a name that is none.
        """
        return self.at(shopping.chosen(rule, await self.shops()))

    def now_s(self) -> int:
        """Return the time by this payer's clock, in Unix seconds."""
        return int(self.world.clock.now() + self.skew_s)

    # --- over HTTP -------------------------------------------------------------------

    async def send(
        self, method: str, path: str, *, json: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request to the service; return its answer, also if the exchange breaks."""
        content = json if isinstance(json, bytes) else msgspec.json.encode(json)
        has_body = json is not None
        request = self.http.build_request(
            method, path, content=content if has_body else None, headers=headers
        )
        if has_body:
            request.headers["Content-Type"] = "application/json"
        try:
            response = await self.http.send(request)
        except httpx.TransportError as error:
            answer = Answer(None, {}, request.extensions["exchange"], broken=type(error).__name__)
        else:
            exchange = request.extensions["exchange"]
            answer = Answer(response.status_code, _object(response), exchange, response.text)
        self.world.last_exchange = answer.exchange
        return answer

    async def ask(
        self,
        resource: str = QUOTE,
        *,
        payment_id: str | None = None,
        session_id: str | None = None,
        order: Any = None,
    ) -> Answer:
        """Request a protected resource, with or without a proof of payment."""
        proofs = {"X-Payment-Id": payment_id, "X-Session-Id": session_id}
        headers = {name: value for name, value in proofs.items() if value is not None}
        return await self.send("POST", resource, json=order or ORDER, headers=headers)

    async def ask_session(
        self, max_spend: str, duration: int, *, payment_id: str | None = None
    ) -> Answer:
        """Request a session of `max_spend` tokens and `duration` seconds."""
        headers = {"X-Payment-Id": payment_id} if payment_id is not None else {}
        body = wire_body(SessionRequest, max_spend=max_spend, duration=duration)
        return await self.send("POST", SESSIONS, json=body, headers=headers)

    async def pay(
        self,
        required: Answer,
        header: str | None = None,
        *,
        payment_id: str | None = None,
        requirements: dict[str, Any] | None = None,
    ) -> Answer:
        """Settle a 402 at /api/pay, with a newly signed header unless one is given.

        `payment_id` and `requirements` (only the fields that differ) replace the 402's own.
        Raises `PaymentFailed` if `required` is not a 402.
        """
        wanted = {**required.requirements, **(requirements or {})}
        body = wire_body(
            SettlementRequest,
            payment_id=payment_id if payment_id is not None else required.payment_id,
            payment_header=header if header is not None else self.sign(required),
            payment_requirements=wanted,
        )
        return await self.send("POST", "/api/pay", json=body)

    async def buy(self, *, at: ServiceName | Choose | None = None) -> Answer:
        """Request a quote, pay as the policy says, and return the last answer of /api/pay.

        `at` is the name of another service, or a rule that chooses one (`choose`). Raises
        `PaymentFailed` without a 402, and `SpendingCapExceeded` beyond the budget.
        """
        there = await self.sent_to(at)
        order = await there._shopper.order(there.ask)
        return order.last

    async def fetch(self, *, at: ServiceName | Choose | None = None) -> Answer:
        """Get one quote as the policy says; return the last answer, whose status is 200 if served.

        It pays for it and shows the payment id, or spends a session. Without a 402, or after a
        final refusal, the answer is that one. `at` is as in `buy`. Raises `SpendingCapExceeded`
        beyond the budget.
        """
        return await (await self.sent_to(at))._shopper.fetch()

    async def sent_to(self, at: ServiceName | Choose | None) -> "Payer":
        """Return this payer at the service of a name, or that a rule chooses; None is this one."""
        if at is None:
            return self
        return self.at(at) if isinstance(at, str) else await self.choose(at)

    async def open_session(self, max_spend: str, duration: int) -> Answer:
        """Pay a deposit as the policy says, and return the answer that names the session.

        Raises as `buy`.
        """
        return await self._shopper.deposit(max_spend, duration)

    async def payment(self, payment_id: str) -> dict[str, Any]:
        """Return the service's record of a payment; empty if there is none."""
        return (await self.send("GET", f"/api/payments/{payment_id}")).body

    async def session(self, session_id: str) -> dict[str, Any]:
        """Return the service's view of a session."""
        return (await self.send("GET", f"/api/sessions/{session_id}")).body

    # --- signing ---------------------------------------------------------------------

    def sign(
        self,
        required: Answer,
        *,
        spelling: Spelling = "hex",
        by: Wallet | None = None,
        network: Network | None = None,
        receive: bool = False,
        **wrong: Any,
    ) -> str:
        """Return a payment header for a 402, signed by this payer's clock.

        `wrong` replaces fields of the authorization *before* signing: `to` (an address), `value`,
        `valid_after`, `valid_before` (integers), `nonce` (32 bytes). `by` signs instead; the
        authorization still names this payer. `network` replaces the network that is signed for and
        named in the header. `receive` signs a ReceiveWithAuthorization, which only the payee may
        submit.
        """
        wanted: PaymentRequirements = decode(
            msgspec.json.encode(required.requirements), PaymentRequirements
        )
        auth = self.wallet.authorize(wanted, self.now_s())
        if "to" in wrong:
            wrong["to"] = parse_address(wrong["to"])
        auth = _replace(auth, wrong)
        network = network or self.world.network
        signature = _signature(by or self.wallet, auth, network.domain, receive=receive)
        return encode_header(auth, signature, network, spelling)

    def forge(self, header: str, *, spelling: Spelling = "hex", **changed: Any) -> str:
        """Return a header with fields of `wrong` (see `sign`) changed *after* signing."""
        auth, signature = authorization_of(decode_header(header))
        if "to" in changed:
            changed["to"] = parse_address(changed["to"])
        return encode_header(_replace(auth, changed), signature, self.world.network, spelling)

    def relabel(
        self,
        header: str,
        *,
        scheme: str | None = None,
        network: str | None = None,
        asset: str | None = None,
    ) -> str:
        """Return a header with another scheme, network or token, which no signature covers."""
        labelled = decode_header(header)
        changed = msgspec.structs.replace(
            labelled,
            scheme=scheme or labelled.scheme,
            network=network or labelled.network,
            payload=msgspec.structs.replace(
                labelled.payload, asset=asset or labelled.payload.asset
            ),
        )
        return to_hex(encode(changed))

    def window(self, header: str) -> tuple[int, int]:
        """Return validAfter and validBefore of a header, in Unix seconds (both exclusive)."""
        auth, _ = authorization_of(decode_header(header))
        return auth.valid_after, auth.valid_before

    # --- on the chain, on its own account --------------------------------------------

    async def balance(self) -> int:
        """Return this payer's balance on the chain, in base units."""
        return await self.world.balance(self.address)

    async def transfer(self, to: str, amount: str) -> Sent:
        """Send tokens in this payer's own transaction."""
        amount_base = to_base(amount, self.world.network.decimals)
        return await self._call(abi.transfer(parse_address(to), amount_base))

    async def cancel(self, header: str, *, by: Wallet | None = None) -> Sent:
        """Cancel the authorization of a header, on the chain."""
        auth, _ = authorization_of(decode_header(header))
        signature = (by or self.wallet).sign_cancellation(auth.nonce, self.world.network.domain)
        return await self._call(abi.cancel_authorization(auth.from_, auth.nonce, signature))

    async def submit(self, header: str, *, receive: bool = False) -> Sent:
        """Submit a signed authorization to the chain, as anyone may."""
        auth, signature = authorization_of(decode_header(header))
        return await self._call(abi.transfer_with_authorization(auth, signature, receive=receive))

    async def _call(self, data: bytes) -> Sent:
        return await self.world.transact(self.address, to_hex(data))


def _object(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer; empty if the answer is not one."""
    try:
        body = decode(response.content, Any)
    except BadMessage:
        return {}
    return body if isinstance(body, dict) else {}


def _signature(wallet: Wallet, auth: Authorization, domain: Domain, *, receive: bool) -> bytes:
    if not receive:
        return wallet.sign(auth, domain)
    key = PrivateKey(from_hex(wallet.private_key, 32))
    return sign(transfer_digest(auth, domain, RECEIVE_TYPEHASH), key)


def _replace(auth: Authorization, changes: dict[str, Any]) -> Authorization:
    fields = {name: getattr(auth, name) for name in Authorization.__dataclass_fields__}
    unknown = set(changes) - set(fields)
    if unknown:
        raise TypeError(f"an authorization has no {', '.join(sorted(unknown))}")
    return Authorization(**(fields | changes))
