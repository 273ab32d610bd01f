"""A payer's requests to one service, its signatures and its transactions, each on its own.

It does them correctly, or with chosen defects: `sign` and `rewrite_header` say which.
"""

from typing import Any, Literal

import httpx
import msgspec
from msgspec.structs import replace

from x402sim.clock import Clock
from x402sim.events import ServiceName
from x402sim.payer import core, standard
from x402sim.payer.core import PaymentFailed
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.protocol.header import Spelling, authorization_of, decode_header, spelled
from x402sim.protocol.messages import (
    BadMessage,
    PaymentRequirements,
    decode,
    encode,
)
from x402sim.protocol.money import to_base
from x402sim.protocol.networks import Network
from x402sim.protocol.ways import object_in
from x402sim.protocol.x402 import PAYMENT_HEADERS, read_payment, read_required
from x402sim.world.control.messages import Sent
from x402sim.world.stages.stage import Stage
from x402sim.world.story.answers import Answer

QUOTE, SESSIONS = "/api/perp/quote", "/api/sessions/create"
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}


class PayerClient:
    """A name, a wallet, and an HTTP client of one service."""

    def __init__(
        self, stage: Stage, name: str, wallet: Wallet, service: ServiceName = "service"
    ) -> None:
        self.stage, self.name, self.wallet = stage, name, wallet
        self.http = stage.client(name, service)
        self.skew_s = 0.0
        """Seconds by which this payer's clock is ahead of the true time."""
        self.network = stage.network_of(service)
        """The network whose token it pays with: that of the service it is at."""

    @property
    def address(self) -> str:
        """The payer's address."""
        return self.wallet.address

    @property
    def clock(self) -> Clock:
        """The true time: `now()` in Unix seconds, and `await sleep(seconds)`."""
        return self.stage.clock

    def now_s(self) -> int:
        """Return the time by this payer's clock, in Unix seconds."""
        return int(self.stage.clock.now() + self.skew_s)

    # --- over HTTP -------------------------------------------------------------------

    async def send(
        self, method: str, path: str, *, json: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request to the service; return its answer, also if the exchange breaks."""
        named, body = {name.lower(): value for name, value in (headers or {}).items()}, b""
        if json is not None:
            body = json if isinstance(json, bytes) else encode(json)
            named["content-type"] = "application/json"
        request = self.http.request_to(method, path, named, body)
        try:
            response = await self.http.ask(request)
        except httpx.TransportError as error:
            answer = Answer(None, {}, request.extensions["exchange"], broken=type(error).__name__)
        else:
            exchange = request.extensions["exchange"]
            said, text = object_in(response.content) or {}, response.text
            answer = Answer(response.status, said, exchange, text, headers=response.headers)
        self.stage.last_exchange = answer.exchange
        return answer

    async def ask(
        self,
        resource: str = QUOTE,
        *,
        payment_id: str | None = None,
        session_id: str | None = None,
        header: str | None = None,
        order: Any = None,
    ) -> Answer:
        """Request a protected resource, with or without a proof of payment.

        A `header` that was signed for one step, by whomever, is a payment of its own. A
        `payment_id` is served as often as it is shown, by default.
        """
        headers = core.proofs(payment_id, session_id)
        if header is not None:
            headers[PAYMENT_HEADERS[2]] = header
        return await self.send("POST", resource, json=order or ORDER, headers=headers)

    async def ask_session(
        self, deposit: str, duration: int, *, payment_id: str | None = None
    ) -> Answer:
        """Request a session of `deposit` tokens and a `duration` in the service's unit, seconds."""
        body = {"maxSpend": deposit, "duration": duration}
        return await self.send("POST", SESSIONS, json=body, headers=core.proofs(payment_id))

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
        None for one of them leaves it out. Raises `PaymentFailed` if `required` is not a 402.
        """
        body = core.settlement(
            required.payment_id if payment_id is None else payment_id,
            self.sign(required) if header is None else header,
            required.requirements,
            requirements,
        )
        return await self.send("POST", core.PAY_PATH, json=body)

    async def payment(self, payment_id: str) -> dict[str, Any]:
        """Return the service's record of a payment, or its error if there is none."""
        return (await self.send("GET", f"/api/payments/{payment_id}")).body

    async def session(self, session_id: str) -> dict[str, Any]:
        """Return the service's view of a session, or its error if there is none."""
        return (await self.send("GET", f"/api/sessions/{session_id}")).body

    # --- signing ---------------------------------------------------------------------

    def sign(
        self,
        required: Answer,
        *,
        steps: Literal[1, 2] = 2,
        spelling: Spelling = "hex",
        by: Wallet | None = None,
        network: Network | None = None,
        receive: bool = False,
        **wrong: Any,
    ) -> str:
        """Return a payment header for a 402, signed by this payer's clock.

        It is for `pay`; with `steps=1` it is for `ask`, in version 2 of the x402 standard.

        `wrong` replaces fields of the authorization *before* signing: `to` (an address), `value`,
        `valid_after`, `valid_before` (integers), `nonce` (32 bytes). `by` signs instead; the
        authorization still names this payer. `network` replaces the network that is signed for and
        named in the header. `receive` signs a ReceiveWithAuthorization, which only the payee may
        submit. These two and `spelling` are for two steps only. Raises `PaymentFailed` if
        `required` is not a 402 that can be paid so.
        """
        if steps == 1:
            if (spelling, network, receive) != ("hex", None, False):
                raise ValueError("spelling, network and receive are for steps=2")
            return self._sign_one_step(required, by, wrong)
        wanted: PaymentRequirements = decode(
            msgspec.json.encode(required.requirements), PaymentRequirements
        )
        auth = self.wallet.authorize(wanted, self.now_s())
        return core.signed_header(
            core.changed(auth, wrong),
            by or self.wallet,
            network or self.network,
            spelling,
            receive=receive,
        )

    def _sign_one_step(self, required: Answer, by: Wallet | None, wrong: dict[str, Any]) -> str:
        if required.standard_offer is None:
            raise PaymentFailed(f"no payment in one step is offered: {required.error}")
        offer = standard.choose(read_required(required.standard_offer), self.network)
        _, header = standard.sign(
            offer, self.wallet, self.network, self.now_s(), by=by, changes=wrong
        )
        return header

    def rewrite_header(
        self,
        header: str,
        *,
        spelling: Spelling = "hex",
        scheme: str | None = None,
        network: str | None = None,
        asset: str | None = None,
        **changed: Any,
    ) -> str:
        """Return a header that was changed *after* signing: in fields of `wrong` (see `sign`), or
        in its scheme, network or token, which no signature covers."""
        if changed:
            header = core.rewritten_header(header, self.network, **changed)
        old = decode_header(header)
        payload = replace(old.payload, asset=asset or old.payload.asset)
        scheme, network = scheme or old.scheme, network or old.network
        return spelled(replace(old, scheme=scheme, network=network, payload=payload), spelling)

    def window(self, header: str) -> tuple[int, int]:
        """Return validAfter and validBefore of a header, in Unix seconds (both exclusive)."""
        auth, _ = authorization_of(header)
        return auth.valid_after, auth.valid_before

    # --- on the chain, on its own account --------------------------------------------

    async def balance(self) -> int:
        """Return this payer's balance on the chain, in base units."""
        elsewhere = None if self.network == self.stage.network else self.network.name
        return await self.stage.balance(self.address, elsewhere)

    async def transfer(self, to: str, amount: str) -> Sent:
        """Send tokens in this payer's own transaction."""
        amount_base = to_base(amount, self.stage.network.decimals)
        return await self._call(abi.transfer(parse_address(to), amount_base))

    async def cancel(self, header: str, *, by: Wallet | None = None) -> Sent:
        """Cancel the authorization of a header, on the chain."""
        auth, _ = authorization_of(header)
        signature = (by or self.wallet).sign_cancellation(auth.nonce, self.stage.network.domain)
        return await self._call(abi.cancel_authorization(auth.from_, auth.nonce, signature))

    async def submit(self, header: str, *, receive: bool = False) -> Sent:
        """Submit a signed authorization to the chain, as anyone may: of `sign`, or in one step."""
        try:
            auth, signature = authorization_of(header)
        except BadMessage:
            signed = read_payment(2, header).signed
            auth, signature = signed.authorization, signed.signature
        return await self._call(abi.transfer_with_authorization(auth, signature, receive=receive))

    async def _call(self, data: bytes) -> Sent:
        return await self.stage.transact(self.address, to_hex(data))
