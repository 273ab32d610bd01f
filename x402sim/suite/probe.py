"""What a check acts with: it asks, pays, opens sessions, and says what it expects.

Everything a target can answer is data here: a check that cannot read an answer it needs
is inconclusive, one that sees what must not be fails.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import msgspec

from x402sim.journal import Entry, Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import Spelling, authorization_of, decode_header, encode_header
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import MAINNET, Network, network_named
from x402sim.suite import redact
from x402sim.suite.answers import (
    Answer,
    Challenge,
    OpenSession,
    Paid,
    as_fields,
    decoded,
    find_session_id,
)
from x402sim.suite.examples import examples
from x402sim.suite.setting import Ledger, Setting
from x402sim.suite.verdict import Failed, Inconclusive, Skipped

JSON = {"Content-Type": "application/json"}
BAD_BODY = (400, 422)
"""What may answer a body that the target does not take."""
TX_HASH = re.compile(r"0x[0-9a-fA-F]{64}")
CENT_BASE = 10_000
"""A hundredth of the token, in base units."""


class Probe:
    """One check's hands and eyes; `has_meddled` if it asked the world for more than money."""

    def __init__(self, setting: Setting, ledger: Ledger) -> None:
        self.setting, self.ledger, self.target = setting, ledger, setting.target
        self.observed: list[str] = []
        self.last: Answer | None = None
        self.has_meddled = False

    # --- asking ----------------------------------------------------------------------

    async def send(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        may_break: bool = False,
        as_is: bool = False,
    ) -> Answer:
        """Send one request. A broken exchange is inconclusive, unless it `may_break`.

        With `as_is` the path goes out as it stands, with its dots and double slashes.
        """
        if json is not None:
            content = msgspec.json.encode(json)
        http = self.setting.http
        all_headers: dict[str, Any] = {**(JSON if content else {}), **(headers or {})}
        request = http.build_request(method, path, content=content, headers=all_headers)
        if as_is:
            base = http.base_url.raw_path.rstrip(b"/")
            request.extensions["target"] = base + path.encode()
        try:
            response = await http.send(request)
        except httpx.TransportError as error:
            broken = type(error).__name__
            show = partial(redact.exchange, request, None, broken)
            self.last = Answer(0, httpx.Headers(), "", None, show, broken)
            if may_break:
                return self.last
            raise Inconclusive(f"{method} {path} was not answered: {error!r}") from error
        self.last = Answer(
            response.status_code,
            response.headers,
            response.text,
            decoded(response.content),
            partial(redact.exchange, request, response),
        )
        return self.last

    async def ask(
        self,
        *,
        payment_id: str | None = None,
        session_id: str | None = None,
        path: str | None = None,
        body: Any = None,
        may_break: bool = False,
    ) -> Answer:
        """Ask for the protected resource, with a proof of payment or without.

        Without a `body` it is one the target takes; which one may show only once it is paid.
        """
        proofs = {"X-Payment-Id": payment_id, "X-Session-Id": session_id}
        headers = {name: value for name, value in proofs.items() if value is not None}
        endpoint = self.target.protected

        async def send(body: Any) -> Answer:
            return await self.send(
                endpoint.method,
                path or endpoint.path,
                json=body,
                headers=headers,
                may_break=may_break,
            )

        if body is not None:
            return await send(body)
        usual = self.ledger.body or endpoint.bodies[0]
        answer = await send(usual)
        others = [other for other in endpoint.bodies if other != usual]
        for other in others if headers and answer.status in BAD_BODY else ():
            again = await send(other)
            if self.has_content(again):
                self.ledger.body = other
                return again
        return answer

    async def unpaid(self) -> Answer:
        """Ask without proof, with a body the target takes if there is one; return the answer."""
        if self.ledger.body is None:
            await self._find_body()
        return await self.ask()

    async def challenge(self) -> Challenge:
        """Ask without proof and read the 402; raises `Inconclusive` if it cannot be read."""
        return self.read(await self.unpaid())

    async def _find_body(self) -> None:
        """Find a body the target takes: it may validate bodies before it asks for money."""
        for body in self.target.protected.bodies:
            if (await self.ask(body=body)).status == 402:
                self.ledger.body = body
                return

    def read(self, answer: Answer) -> Challenge:
        """Read a 402; raises `Inconclusive` if it cannot be paid."""
        if answer.status != 402:
            raise Inconclusive(f"expected a 402 to pay, got {answer.status}")
        places = self.target.payment_required
        payment_id, wanted = answer.at(places.payment_id), answer.at(places.requirements)
        if not isinstance(payment_id, str) or not isinstance(wanted, dict):
            raise Inconclusive("the 402 has no readable payment id and requirements")
        amount = wanted.get("maxAmountRequired")
        if not isinstance(amount, str) or not amount.isdecimal():
            raise Inconclusive(f"the 402 asks for {amount!r}, which is no amount")
        return Challenge(answer, payment_id, wanted)

    # --- money -----------------------------------------------------------------------

    async def payer(self, amount: str = "1000.00") -> Wallet:
        """Return a payer with money: a new one of the world's, or the one that was given."""
        if self.setting.control is not None:
            wallet = self.stranger()
            body = {"address": wallet.address, "amount": amount}
            await self.control("POST", "faucet", body)
            return wallet
        if self.setting.payer is None:
            raise Skipped("it needs a funded payer")
        return self.setting.payer

    def stranger(self) -> Wallet:
        """Return a new wallet without any money."""
        self.ledger.payers += 1
        luck = self.setting.rng.stream(f"wallet {self.ledger.payers}")
        return Wallet(luck.randbytes(32), nonces=lambda: luck.randbytes(32))

    def network(self, challenge: Challenge) -> Network:
        """Return the network of a 402, with the token it names; raises `Inconclusive`."""
        try:
            network = network_named(str(challenge.requirements.get("network")))
            asset = parse_address(str(challenge.requirements.get("asset")))
        except ValueError as error:
            raise Inconclusive(f"the 402 cannot be paid: {error}") from error
        if network.chain_id == MAINNET.chain_id and not self.setting.allow_mainnet:
            raise Skipped("it would pay on mainnet; --allow-mainnet lets it")
        return replace(network, asset=asset)

    def sign(
        self,
        challenge: Challenge,
        payer: Wallet,
        *,
        spelling: Spelling | None = None,
        by: Wallet | None = None,
        network: Network | None = None,
        **changes: Any,
    ) -> str:
        """Return a payment header for a 402; its amount counts against the budget.

        `changes` replace fields of the authorization before signing (`to`, `value`,
        `valid_after`, `valid_before`, `nonce`); `by` signs instead of the payer; with
        `network` it is for another chain or token.
        """
        network = network or self.network(challenge)
        wanted = msgspec.convert(challenge.to_send, PaymentRequirements)
        auth = payer.authorize(wanted, self.setting.clock.now_s())
        auth = replace(auth, **as_fields(changes))
        self._count(payer, auth)
        signature = (by or payer).sign(auth, network.domain)
        return encode_header(auth, signature, network, spelling or self.target.pay.spelling)

    def forge(self, challenge: Challenge, header: str, **changes: Any) -> str:
        """Return a header with fields of its authorization changed after signing."""
        auth, signature = authorization_of(decode_header(header))
        auth = replace(auth, **as_fields(changes))
        return encode_header(auth, signature, self.network(challenge), self.target.pay.spelling)

    def _count(self, payer: Wallet, auth: Authorization) -> None:
        own = self.setting.payer
        if self.setting.control is not None or own is None or payer.address != own.address:
            return
        if self.ledger.signed_base + auth.value > self.setting.budget_base:
            left = to_decimal(self.setting.budget_base - self.ledger.signed_base, 6)
            raise Skipped(f"it would sign for {to_decimal(auth.value, 6)}, the budget has {left}")
        self.ledger.signed_base += auth.value

    async def settle(
        self,
        challenge: Challenge,
        header: str,
        *,
        payment_id: str | None = None,
        requirements: dict[str, Any] | None = None,
        may_break: bool = False,
    ) -> Answer:
        """Send a payment to the settlement endpoint; `requirements` replace single fields."""
        wanted = {**challenge.to_send, **(requirements or {})}
        body = {
            "paymentId": challenge.payment_id if payment_id is None else payment_id,
            "paymentHeader": header,
            "paymentRequirements": {k: v for k, v in wanted.items() if v is not None},
        }
        return await self.send("POST", self.target.pay.path, json=body, may_break=may_break)

    async def buy(self, payer: Wallet | None = None) -> Paid:
        """Pay for the protected resource; raises `Inconclusive` if that does not work."""
        return await self.pay(await self.challenge(), payer)

    async def pay(self, challenge: Challenge, payer: Wallet | None = None) -> Paid:
        """Pay what a 402 asks for; raises `Inconclusive` if that does not work."""
        if payer is None:
            payer = await self.payer(to_decimal(challenge.amount_base + 1_000_000, 6))
        header = self.sign(challenge, payer)
        receipt = await self.settle(challenge, header)
        if receipt.status != 200:
            raise Inconclusive(f"a valid payment was not settled: {self.seen(receipt)}")
        return Paid(challenge, header, receipt, payer)

    # --- sessions --------------------------------------------------------------------

    async def budget_for(self, requests: int) -> str:
        """Return the smallest maxSpend that pays for so many protected requests."""
        cents = -(-requests * (await self.challenge()).amount_base // CENT_BASE)
        return f"{cents // 100}.{cents % 100:02}"

    async def ask_session(
        self, max_spend: Any, duration: Any = None, *, payment_id: str | None = None
    ) -> Answer:
        """Ask for a session; a proof of payment says that its deposit is paid."""
        sessions = self.target.sessions
        body = {
            "maxSpend": max_spend,
            "duration": sessions.duration if duration is None else duration,
        }
        headers = {"X-Payment-Id": payment_id} if payment_id is not None else {}
        return await self.send("POST", sessions.path, json=body, headers=headers)

    async def open_session(self, max_spend: str, payer: Wallet | None = None) -> OpenSession:
        """Pay a deposit and find the session's id; raises `Inconclusive`."""
        challenge = self.read(await self.ask_session(max_spend))
        paid = await self.pay(challenge, payer)
        answer = await self.ask_session(max_spend, payment_id=challenge.payment_id)
        session_id = find_session_id(paid.receipt.body) or find_session_id(answer.body)
        if session_id is None:
            raise Inconclusive("no session id (session_…) was given after the deposit was paid")
        return OpenSession(session_id, paid, answer)

    def examples(self, count: int, strategy: Callable[[Any], Any]) -> list[Any]:
        """Return at most `count` inputs that Hypothesis makes up, the same in every run."""
        return examples(count, strategy)

    # --- the world -------------------------------------------------------------------

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the world's control plane; raises `Inconclusive` if it refuses."""
        control = self.setting.control
        if control is None:
            raise Skipped("it needs the world around the target")
        self.has_meddled |= method != "GET" and path != "faucet"
        try:
            answer = await control.request(method, f"/{path}", json=body or {})
        except httpx.TransportError as error:
            raise Inconclusive(f"the world was not reached: {error!r}") from error
        if answer.status_code != 200:
            raise Inconclusive(f"the world refused {path!r}: {answer.text[:200]}")
        return answer.json()

    async def rpc(self, method: str, *params: Any) -> Any:
        """Ask a node of the target's chain; raises `Inconclusive` if it does not answer."""
        if self.setting.rpc is None:
            raise Skipped("it needs sight of the chain")
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            answer = (await self.setting.rpc.post("", json=call)).json()
        except (httpx.TransportError, ValueError) as error:
            raise Inconclusive(f"the chain was not reached: {error!r}") from error
        if not isinstance(answer, dict) or "result" not in answer:
            raise Inconclusive(f"the chain answered {str(answer)[:200]}")
        return answer["result"]

    async def mined(self, paid: Paid) -> dict[str, Any] | None:
        """Return what the chain says of a payment's transaction; None if it knows of none."""
        found: list[dict[str, Any]] = []

        async def is_known() -> bool:
            receipt = await self.rpc("eth_getTransactionReceipt", tx_hash)
            found.extend([receipt] if receipt else [])
            return bool(receipt)

        tx_hash = paid.receipt.at(self.target.receipt.tx_hash)
        is_hash = isinstance(tx_hash, str) and TX_HASH.fullmatch(tx_hash)
        return found[0] if is_hash and await self.eventually(is_known) else None

    async def transfers(self, payer: Wallet) -> list[dict[str, Any]]:
        """Return the transfers a payer has made, as the world's ledger has them."""
        found = await self.control("GET", "transfers")
        return [each for each in found if each["from"] == payer.address]

    async def paid(self, payer: Wallet, *amounts_base: int) -> None:
        """Fail unless these are all the payments of a payer; without a world nobody counts."""
        if self.setting.control is not None:
            moved = [int(each["amount"]) for each in await self.transfers(payer)]
            self.expect("what the payer has paid, on the ledger", moved, list(amounts_base))

    async def next_event(self) -> int:
        """Return the number that the next event of the world's journal will have."""
        return int((await self.control("GET", "who"))["journal"])

    async def journal(self, since: int) -> list[Entry]:
        """Return the entries of the world's journal from number `since` on, oldest first."""
        if self.setting.control is None:
            raise Skipped("it needs the world around the target")
        try:
            answer = await self.setting.control.get("/journal", params={"since": since})
            answer.raise_for_status()
            return list(Journal.load(answer.content))
        except (httpx.HTTPError, ValueError) as error:
            raise Inconclusive(f"the world's journal was not read: {error!r}") from error

    async def eventually(self, holds: Callable[[], Awaitable[bool]], within_s: float = 1) -> bool:
        """Tell whether something comes to hold within a time, looking ten times."""
        for _ in range(10):
            if await holds():
                return True
            await self.setting.clock.sleep(within_s / 10)
        return await holds()

    async def advance(self, seconds: float) -> None:
        """Turn the target's clock."""
        if self.setting.advance is None:
            raise Skipped("it needs a target whose clock can be turned")
        await self.setting.advance(seconds)

    # --- what must be ----------------------------------------------------------------

    def expect(self, what: str, actual: Any, expected: Any) -> None:
        """Fail unless `actual` equals `expected`."""
        if actual != expected:
            raise Failed(what, expected, actual)

    def require(self, what: str, holds: bool, actual: Any) -> None:
        """Fail unless it holds; `what` is the demand, in words."""
        if not holds:
            raise Failed("", what, actual)

    def settled(self, answer: Answer) -> None:
        """Fail unless a valid payment was settled; for lack of money it is inconclusive."""
        if answer.status == 200:
            return
        is_ours = self.setting.control is None
        if is_ours and (answer.status >= 500 or "Insufficient USDC balance" in answer.text):
            raise Inconclusive(f"the payment could not be made: {self.seen(answer)}")
        raise Failed("a valid payment", "200 with a receipt", self.seen(answer))

    def served(self, answer: Answer) -> None:
        """Fail unless the protected content was served."""
        has = self.has_content(answer)
        if answer.status != 200 or not has:
            raise Failed("the request", "200 with the content", self.seen(answer))

    def not_served(self, answer: Answer, *, is_402: bool = False) -> None:
        """Fail if protected content was served, or if it must be a 402 and is none."""
        if self.has_content(answer) or 200 <= answer.status < 300:
            raise Failed("a request without valid proof", "no content", self.seen(answer))
        if is_402 and answer.status != 402:
            raise Failed("a request without valid proof", 402, self.seen(answer))

    def refused(self, answer: Answer, *texts: str) -> None:
        """Fail unless a settlement was refused with one of the texts of section 7.

        Without texts any refusal will do. The status must be one the target file allows.
        """
        if answer.status < 400:
            wanted = " or ".join(map(repr, texts)) or "a refusal"
            raise Failed("the settlement", wanted, self.seen(answer))
        if texts and not any(text in answer.text for text in texts):
            raise Failed("the error's text", " or ".join(map(repr, texts)), self.seen(answer))
        for text in texts:
            allowed = self.target.statuses.get(text)
            if text in answer.text and allowed and answer.status not in allowed:
                raise Failed(f"the status of {text!r}", allowed, answer.status)

    def withheld(self, answer: Answer) -> None:
        """Fail if protected content was served; anything else may be answered."""
        self.require("no protected content", not self.has_content(answer), self.seen(answer))

    def has_content(self, answer: Answer) -> bool:
        """Tell whether an answer has what is paid for."""
        return answer.at(self.target.protected.content) is not None

    def seen(self, answer: Answer) -> str:
        """Return an answer in one line, for a verdict."""
        if answer.broken:
            return f"no answer ({answer.broken})"
        return f"{answer.status} {redact.told(answer.text[:2000])[:160]}"

    def observe(self, text: str) -> None:
        """Say what the target does where the specification is silent."""
        self.observed.append(text)
