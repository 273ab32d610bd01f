"""What the payers do until the service is killed: buy, send again, open sessions and spend them.

The choices are seeded. A broken connection ends a payer's turn: the service was killed.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.crash.deployment import Deployment
from tests.crash.memory import Attempt, Memory
from tests.serve.driver import ORDER, PAY, QUOTE, SESSIONS, header
from x402sim import Wallet
from x402sim.payer.core import proofs, settlement

NEVER_EXPIRES_S = 3600
ALREADY_SETTLED = "Payment already settled"


class Payer:
    """One account that pays; `act` does one thing, chosen by `luck`."""

    def __init__(
        self, deployment: Deployment, number: int, memory: Memory, luck: random.Random
    ) -> None:
        self._http = deployment.service
        self._wallet = Wallet(deployment.world.ready["accounts"][number]["privateKey"])
        self._memory = memory
        self._luck = luck
        self._actions: list[Callable[[], None]] = [
            *[self.buy] * 6,
            *[self.send_again] * 4,
            *[self.open_session] * 3,
            *[self.spend] * 5,
            *[self.sign_another] * 2,
            self.replay,
        ]

    def act(self) -> None:
        """Do one thing; raises `httpx.TransportError` when the service is gone."""
        self._luck.choice(self._actions)()

    def buy(self) -> None:
        """Ask, pay, and ask again with the payment id."""
        asked = self._http.post(QUOTE, json=ORDER)
        if self._expect(asked, {402}, "an unpaid quote"):
            self._pay_and_use(self._signed(asked.json()), 200, "a paid quote")

    def open_session(self) -> None:
        """Pay a deposit. Some sessions expire within seconds, the others never."""
        cents, seconds = self._luck.randint(2, 6), self._luck.choice([1, 2, NEVER_EXPIRES_S])
        body = {"maxSpend": f"0.{cents:02}", "duration": seconds}
        asked = self._http.post(SESSIONS, json=body)
        if self._expect(asked, {402}, "an unpaid session"):
            self._pay_and_use(self._signed(asked.json(), body), 201, "a paid session")

    def spend(self) -> None:
        """Spend a session that the payer believes to be active."""
        deposit = self._one_of("deposit", lambda each: each.receipt and each.is_active)
        if deposit is None:
            self.open_session()
        elif self._expect(session := access(self._http, deposit), {201}, "a paid session"):
            deposit.released = max(deposit.released, int(session.json()["released"]))
            proof = {"X-Session-Id": session.json()["sessionId"]}
            deposit.unanswered += 1
            served = self._http.post(QUOTE, json=ORDER, headers=proof)
            deposit.unanswered -= 1
            if self._expect(served, {200, 402}, "a quote with a session"):
                deposit.is_active = served.status_code == 200
                deposit.spent += deposit.is_active

    def send_again(self) -> None:
        """Send a header again whose outcome is unknown."""
        unknown = self._one_of(None, lambda each: each.is_open and not each.is_left_alone)
        if unknown is None:
            self.buy()
        else:
            self._memory.resends += 1
            send(self._http, unknown, self._memory)

    def sign_another(self) -> None:
        """Misbehave: sign a second header for a payment id whose outcome is unknown."""
        first = self._one_of("quote", lambda each: each.is_open)
        if first is None:
            self.buy()
        else:
            send(self._http, self._signed(first.body), self._memory)

    def replay(self) -> None:
        """Misbehave: send a header that has paid, for another payment id."""
        paid = self._one_of("quote", lambda each: each.receipt)
        if paid is None:
            self.buy()
        elif self._expect(asked := self._http.post(QUOTE, json=ORDER), {402}, "an unpaid quote"):
            unpaid, used = asked.json(), paid.body["paymentHeader"]
            body = settlement(unpaid["paymentId"], used, unpaid["paymentRequirements"])
            answer = self._http.post(PAY, json=body)
            self._memory.replays += 1
            self._expect(answer, {409}, "a header that has paid, for another payment id")

    def _pay_and_use(self, attempt: Attempt, status: int, what: str) -> None:
        if send(self._http, attempt, self._memory):
            self._expect(access(self._http, attempt), {status}, what)

    def _one_of(self, resource: str | None, wanted: Callable[[Attempt], object]) -> Attempt | None:
        """Choose an attempt among those for a resource, or all, that are as wanted."""
        found = [a for a in self._memory.attempts if resource in (None, a.resource) and wanted(a)]
        return self._luck.choice(found) if found else None

    def _signed(self, asked: dict[str, Any], body: dict[str, Any] | None = None) -> Attempt:
        """Sign a payment, and remember it before it is sent."""
        requirements, nonce = asked["paymentRequirements"], self._luck.randbytes(32)
        signed = header(self._wallet, requirements, int(time.time()), fixed_nonce=nonce)
        attempt = Attempt(
            payer=self._wallet.address.lower(),
            pay_to=requirements["payTo"].lower(),
            amount=int(requirements["maxAmountRequired"]),
            nonce=nonce.hex(),
            payment_id=asked["paymentId"],
            resource="deposit" if body else "quote",
            body=settlement(asked["paymentId"], signed, requirements),
            session_body=body or {},
        )
        self._memory.attempts.append(attempt)
        return attempt

    def _expect(self, answer: httpx.Response, wanted: set[int], what: str) -> bool:
        return expect(answer, wanted, what, self._memory)


def expect(answer: httpx.Response, wanted: set[int], what: str, memory: Memory) -> bool:
    """Tell whether an answer has one of these statuses; complain if not."""
    if answer.status_code in wanted:
        return True
    memory.complaints.append(f"{what} answered {answer.status_code}: {answer.text[:300]}")
    return False


def send(http: httpx.Client, attempt: Attempt, memory: Memory) -> bool:
    """Send a header; remember the answer, and return whether it was a receipt."""
    attempt.sent += 1
    answer = http.post(PAY, json=attempt.body)
    if not expect(answer, {200, 400, 402, 409, 502}, "a payment", memory):
        return False
    said = answer.json()
    if answer.status_code == 200:
        attempt.receipt = said["txHash"]
    elif said.get("final") and said["error"] != ALREADY_SETTLED:
        attempt.is_final = True
    return answer.status_code == 200


def access(http: httpx.Client, attempt: Attempt) -> httpx.Response:
    """Ask for what was paid for, with the payment id."""
    proof = proofs(attempt.payment_id)
    if attempt.resource == "deposit":
        return http.post(SESSIONS, json=attempt.session_body, headers=proof)
    return http.post(QUOTE, json=ORDER, headers=proof)
