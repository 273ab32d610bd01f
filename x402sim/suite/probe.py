"""The object through which a check acts: it requests the resource, pays for it, and opens sessions.

An unreadable answer makes a check inconclusive; a wrong one fails it (`expect`). Payers and
signatures are in `probe.money`, the world around the target in `probe.world`, its chain in
`probe.chain`.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
import msgspec

from x402sim.payer.wallet import Wallet
from x402sim.protocol.money import to_base, to_decimal
from x402sim.suite import redact, wire
from x402sim.suite.answers import (
    Challenge,
    OpenSession,
    Paid,
    TargetAnswer,
    decoded,
    read_402,
)
from x402sim.suite.chain_view import ChainView
from x402sim.suite.control_api import ControlApi, eventually
from x402sim.suite.departures import Departure, departures
from x402sim.suite.money import Money
from x402sim.suite.setting import RunState, Setting
from x402sim.suite.turns import RestartFailed
from x402sim.suite.verdict import CheckFailed, Inconclusive, Skipped

JSON = {"Content-Type": "application/json"}
BAD_BODY = (400, 422)
"""The statuses with which a target rejects a body."""
POLL_S, POLLS = 0.25, 40
"""How often a condition is looked at, at most: in seconds, and within its time."""
OFFER_S = 5.0
"""How long the 402 of a refusal is used instead of a new one."""
CENT_BASE = 10_000
"""A hundredth of the token, in base units."""

STOP_TRIES, STOP_S = 6, 0.5
"""How often, and in which distance, a target is tried that takes no connection any more."""
TOLD_S = 2.0
"""A wait of this long is told."""
WORK_S = 10
"""How long a target works on what is due, once its clock was advanced."""


class Probe:
    """One check's access to the target and its surroundings."""

    def __init__(self, setting: Setting, state: RunState) -> None:
        self.setting, self.state = setting, state
        self.target, self.clock = setting.target, setting.clock
        self.world = ControlApi(setting)
        self.chain = ChainView(setting)
        self.money = Money(setting, state, self.world)
        self.observed: list[str] = []
        self.departed: list[Departure] = []
        self.last: TargetAnswer | None = None

    # --- time --------------------------------------------------------------------------

    async def wait(self, seconds: float) -> None:
        """Let time pass for the target; meanwhile, other checks act.

        A clock that can be advanced is; otherwise the time is really waited for.
        """
        seconds = max(0.0, seconds)
        if self.setting.advance is not None:
            await self.world.advance(seconds)
        else:
            await self.state.turns.waiting(self.clock.sleep(seconds))

    async def eventually(self, holds: Callable[[], Awaitable[bool]], within_s: float) -> bool:
        """Tell whether a condition becomes true within a time; meanwhile, other checks act.

        Where the clock is advanced, what is due then still takes the target a moment.
        """
        end_s = self.clock.now() + within_s
        while not await holds():
            if self.clock.now() >= end_s:
                is_advanced = self.setting.advance is not None
                return is_advanced and await eventually(self.clock, holds, WORK_S)
            await self.wait(max(POLL_S, within_s / POLLS))
        return True

    async def wait_for_the_rest(self) -> None:
        """Return when all checks are over that do not wait; at once where the clock turns."""
        if self.setting.advance is None:
            await self.state.turns.wait_for_the_rest()

    async def restart(self) -> None:
        """End the target and start it again; raises `Inconclusive`.

        Where no clock turns, checks share one restart, at the end of the run.
        """
        if self.setting.advance is not None:
            await self.world.post("crash")
        elif self.setting.restart is not None:
            try:
                await self.state.turns.restart(self.setting.restart)
            except RestartFailed as error:
                raise Inconclusive(f"the target was not restarted: {error}") from error
        else:
            raise Skipped("it needs a way to restart the target: give --restart COMMAND")
        self.state.offers.clear()  # a target may forget what nobody has paid for

    def observe(self, text: str) -> None:
        """Report what the target does where the specification is silent."""
        self.observed.append(text)

    def by_target(self, *keys: str) -> None:
        """Say by which keys of the target file an answer is judged ("pay.spelling").

        If one departs from the specification, a case that passes is observed.
        """
        found = departures(self.target)
        self.departed += [found[key] for key in keys if key in found]

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
    ) -> TargetAnswer:
        """Send one request; raises `Inconclusive` if the exchange breaks, unless it `may_break`.

        With `as_is` the path is sent unchanged, with its dots and double slashes.
        """
        if json is not None:
            content = msgspec.json.encode(json)
        http = self.setting.http
        all_headers: dict[str, Any] = {**(JSON if content else {}), **(headers or {})}
        try:
            request = http.build_request(method, path, content=content, headers=all_headers)
        except (UnicodeEncodeError, httpx.InvalidURL) as error:
            what = "an id of the target that was to be sent"
            raise CheckFailed(what, "text that a header or a path can have", str(error)) from error
        if self.state.stopped:
            raise Inconclusive(self.state.stopped)
        if as_is:
            base = http.base_url.raw_path.rstrip(b"/")
            request.extensions["target"] = base + path.encode()
        try:
            response = await self._answer(request)
        except httpx.TransportError as error:
            broken = type(error).__name__
            show = partial(redact.exchange, request, None, broken, self.setting.secrets)
            self.last = TargetAnswer(self.target, 0, httpx.Headers(), "", None, show, broken)
            if isinstance(error, httpx.ConnectError) and await self._has_stopped():
                at = datetime.fromtimestamp(self.clock.now(), UTC)
                self.state.stopped = (
                    f"the service stopped answering at {at:%H:%M:%S} UTC: {method} {path}: {broken}"
                )
                raise Inconclusive(self.state.stopped) from error
            if may_break:
                return self.last
            is_large = content is not None and len(content) > 1000
            size = f" with a body of {len(content or b'')} bytes" if is_large else ""
            why = f"{method} {path}{size} was not answered: {wire.why(error)}"
            raise Inconclusive(why) from error
        self.last = TargetAnswer(
            self.target,
            response.status_code,
            response.headers,
            redact.without(response.text, self.setting.secrets),
            decoded(response.content),
            partial(redact.exchange, request, response, "", self.setting.secrets),
            networks=self.setting.networks,
        )
        return self.last

    async def _has_stopped(self) -> bool:
        """Tell whether the target, which has answered before, takes no connection for a while."""
        if self.setting.advance is not None or not self.state.has_answered:
            return False
        for _ in range(STOP_TRIES):
            await self.clock.sleep(STOP_S)
            try:
                await self.setting.http.send(self.setting.http.build_request("GET", "/"))
            except httpx.ConnectError:
                continue
            except httpx.TransportError:
                return False
            return False
        return True

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        """Send a request until it is taken; raises `Inconclusive` if the target stays busy."""
        pace, waited_s = self.state.pace, 0.0
        for before in itertools.count():
            await pace.turn(self.clock)
            response = await self.setting.http.send(request)
            wait_s = wire.wait_s(
                response,
                before=before,
                now_s=self.clock.now(),
                may_retry_503=not self.world.has_meddled,
            )
            self.state.has_answered = True
            if wait_s is None:
                return response
            waited_s += wait_s
            if waited_s > wire.PATIENCE_S:
                break
            if wait_s >= TOLD_S:
                self.setting.tell(
                    f"waiting for {wait_s:.0f} s, as the target asks in its {response.status_code}"
                )
            pace.hold(self.clock, wait_s)
        raise Inconclusive(
            f"the target answers {response.status_code} and asks to wait {wait_s:.0f} s more, "
            f"after {wire.PATIENCE_S:.0f} s: give --rate, below its limit"
        )

    # --- the protected resource ------------------------------------------------------

    async def ask(
        self,
        *,
        payment_id: str | None = None,
        session_id: str | None = None,
        path: str | None = None,
        body: Any = None,
        may_break: bool = False,
    ) -> TargetAnswer:
        """Request the protected resource, with or without a proof of payment.

        Without a `body`, send one that the target accepts. A target that validates bodies after
        the payment shows only to a paid request which one it accepts.
        """
        proofs = {"X-Payment-Id": payment_id, "X-Session-Id": session_id}
        headers = {name: value for name, value in proofs.items() if value is not None}
        endpoint = self.target.protected

        async def send(body: Any) -> TargetAnswer:
            return await self.send(
                endpoint.method,
                path or endpoint.path,
                json=body,
                headers=headers,
                may_break=may_break,
            )

        if body is not None:
            return await send(body)
        usual = self.state.body or endpoint.bodies[0]
        answer = await send(usual)
        if headers and path is None:
            self._keep_offer(answer)
        others = [other for other in endpoint.bodies if other != usual]
        for other in others if headers and answer.status in BAD_BODY else ():
            again = await send(other)
            if again.has_content:
                self.state.body = other
                return again
        return answer

    async def unpaid(self) -> TargetAnswer:
        """Request without proof, with an accepted body if there is one; return the answer."""
        if self.state.body is None:
            await self._find_body()
        return await self.ask()

    async def _find_body(self) -> None:
        """Find a body that the target accepts, in case it validates bodies first."""
        for body in self.target.protected.bodies:
            if (await self.ask(body=body)).status == 402:
                self.state.body = body
                return

    async def challenge(self, *, fresh: bool = False) -> Challenge:
        """Return a 402 that nobody has used; raises `Inconclusive` if it cannot be paid.

        A refusal of the last seconds has brought one along, which saves a request; a `fresh` one
        is requested without proof.
        """
        offers = self.state.offers
        while offers and not fresh:
            since_s, answer = offers.pop()
            if self.clock.now() - since_s <= OFFER_S:
                return read_402(answer)
        challenge = read_402(await self.unpaid())
        self.state.seen_ids.add(challenge.payment_id)
        return challenge

    def _keep_offer(self, answer: TargetAnswer) -> None:
        """Keep the 402 of a refused proof, if its id is a new one."""
        try:
            offered = read_402(answer).payment_id
        except Inconclusive:
            return
        if offered not in self.state.seen_ids:
            self.state.seen_ids.add(offered)
            self.state.offers.append((self.clock.now(), answer))

    # --- payments --------------------------------------------------------------------

    async def settle(
        self,
        challenge: Challenge,
        header: str,
        *,
        payment_id: str | None = None,
        requirements: dict[str, Any] | None = None,
        may_break: bool = False,
    ) -> TargetAnswer:
        """Send a payment to the settlement endpoint; `requirements` replace single fields."""
        wanted = {**challenge.to_send, **(requirements or {})}
        body = {
            "paymentId": challenge.payment_id if payment_id is None else payment_id,
            "paymentHeader": header,
            "paymentRequirements": {k: v for k, v in wanted.items() if v is not None},
        }
        return await self.send("POST", self.target.pay.path, json=body, may_break=may_break)

    async def buy(self, payer: Wallet | None = None) -> Paid:
        """Pay for the protected resource; raises `Inconclusive` if that fails."""
        return await self.pay(await self.challenge(), payer)

    async def pay(self, challenge: Challenge, payer: Wallet | None = None) -> Paid:
        """Pay a 402; raises `Inconclusive` if that fails."""
        if payer is None:
            payer = await self.money.payer(to_decimal(challenge.amount_base + 1_000_000, 6))
        header = self.money.sign(challenge, payer)
        receipt = await self.settle(challenge, header)
        if receipt.status != 200:
            raise Inconclusive(f"a valid payment was not settled: {receipt.summary}")
        return Paid(challenge, header, receipt, payer)

    # --- sessions --------------------------------------------------------------------

    async def budget_for(self, requests: int) -> str:
        """Return the smallest maxSpend for this many protected requests, or for more of them."""
        smallest_base = to_base(self.target.sessions.smallest, 6)
        wanted_base = max(requests * (await self.challenge()).amount_base, smallest_base)
        cents = -(-wanted_base // CENT_BASE)
        return f"{cents // 100}.{cents % 100:02}"

    async def worth(self, deposit: Challenge) -> int:
        """Return how many protected requests a session's deposit pays for."""
        return deposit.amount_base // (await self.challenge()).amount_base

    async def ask_session(
        self, max_spend: Any, duration: Any = None, *, payment_id: str | None = None
    ) -> TargetAnswer:
        """Request a session, or claim it: the payment id proves that its deposit is paid."""
        sessions = self.target.sessions
        proof = {"X-Payment-Id": payment_id} if payment_id is not None else {}
        if payment_id is not None and sessions.claim == "get":
            path = sessions.claim_path.replace("{paymentId}", payment_id)
            return await self.send("GET", path, headers=proof)
        body = {
            "maxSpend": max_spend,
            "duration": sessions.duration if duration is None else duration,
        }
        return await self.send("POST", sessions.path, json=body, headers=proof)

    async def open_session(
        self, max_spend: str, payer: Wallet | None = None, *, duration: int | None = None
    ) -> OpenSession:
        """Pay a deposit and find the session's id; raises `Inconclusive`."""
        challenge = read_402(await self.ask_session(max_spend, duration))
        paid = await self.pay(challenge, payer)
        answer = paid.receipt
        if self.target.sessions.claim != "receipt":
            answer = await self.ask_session(max_spend, duration, payment_id=challenge.payment_id)
        session_id = paid.receipt.session_id or answer.session_id
        if session_id is None:
            raise Inconclusive(
                "no session id in the receipt of the deposit, nor in the answer to its claim: "
                f"{answer.summary}; set sessions.claim and sessions.id in the target file"
            )
        return OpenSession(session_id, paid, answer)
