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
        self._wallet = Wallet(deployment.ready["accounts"][number]["privateKey"])
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
            attempt = self._signed(asked.json())
            if self.send(attempt):
                self._expect(access(self._http, attempt), {200}, "a paid quote")

    def open_session(self) -> None:
        """Pay a deposit. Some sessions expire within seconds, the others never."""
        cents, seconds = self._luck.randint(2, 6), self._luck.choice([1, 2, NEVER_EXPIRES_S])
        body = {"maxSpend": f"0.{cents:02}", "duration": seconds}
        asked = self._http.post(SESSIONS, json=body)
        if self._expect(asked, {402}, "an unpaid session"):
            attempt = self._signed(asked.json(), body)
            if self.send(attempt):
                self._expect(access(self._http, attempt), {201}, "a paid session")

    def spend(self) -> None:
        """Spend a session that the payer believes to be active."""
        active = [a for a in self._attempts("deposit") if a.receipt and a.is_active]
        if not active:
            return self.open_session()
        deposit = self._luck.choice(active)
        session = access(self._http, deposit)
        if not self._expect(session, {201}, "a paid session"):
            return None
        deposit.released = max(deposit.released, int(session.json()["released"]))
        proof = {"X-Session-Id": session.json()["sessionId"]}
        deposit.unanswered += 1
        served = self._http.post(QUOTE, json=ORDER, headers=proof)
        deposit.unanswered -= 1
        if self._expect(served, {200, 402}, "a quote with a session"):
            deposit.spent += served.status_code == 200
            deposit.is_active = served.status_code == 200
        return None

    def send_again(self) -> None:
        """Send a header again whose outcome is unknown."""
        still_open = [a for a in self._attempts() if a.is_open and not a.is_left_alone]
        if not still_open:
            return self.buy()
        self._memory.resends += 1
        self.send(self._luck.choice(still_open))
        return None

    def sign_another(self) -> None:
        """Misbehave: sign a second header for a payment id whose outcome is unknown."""
        still_open = [a for a in self._attempts("quote") if a.is_open]
        if not still_open:
            return self.buy()
        first = self._luck.choice(still_open).body
        asked = {key: first[key] for key in ("paymentId", "paymentRequirements")}
        self.send(self._signed(asked))
        return None

    def replay(self) -> None:
        """Misbehave: send a header that has paid, for another payment id."""
        paid = [a for a in self._attempts("quote") if a.receipt]
        if not paid:
            return self.buy()
        asked = self._http.post(QUOTE, json=ORDER)
        if not self._expect(asked, {402}, "an unpaid quote"):
            return None
        unpaid = asked.json()
        used = self._luck.choice(paid).body["paymentHeader"]
        answer = self._http.post(
            PAY, json=settlement(unpaid["paymentId"], used, unpaid["paymentRequirements"])
        )
        self._memory.replays += 1
        self._expect(answer, {409}, "a header that has paid, for another payment id")
        return None

    def send(self, attempt: Attempt) -> bool:
        """Send a header; return whether a receipt was answered."""
        return send(self._http, attempt, self._memory)

    def _attempts(self, resource: str | None = None) -> list[Attempt]:
        return [a for a in self._memory.attempts if resource in (None, a.resource)]

    def _signed(self, asked: dict[str, Any], body: dict[str, Any] | None = None) -> Attempt:
        """Sign a payment, and remember it before it is sent."""
        requirements, nonce = asked["paymentRequirements"], self._luck.randbytes(32)
        signed = header(self._wallet, requirements, int(time.time()), fixed_nonce=nonce)
        attempt = Attempt(
            payer=self._wallet.address.lower(),
            pay_to=requirements["payTo"].lower(),
            amount=int(requirements["maxAmountRequired"]),
            nonce="0x" + nonce.hex(),
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
