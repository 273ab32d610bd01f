"""The object through which a check acts: requests for the resource, payments, sessions.

An unreadable answer makes a check inconclusive; a wrong answer fails the check (`expect`). Payers
and signatures are in `probe.wallets`, the world around the target in `probe.world`, the chain in
`probe.chain`.

A payer may send anything to the settlement endpoint. A service chooses how to refuse, and whether
to read the returned requirements: so `expect_nothing…` count the ledger's transfers and the access.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import msgspec

from x402sim.payer import core
from x402sim.payer.wallet import Wallet
from x402sim.protocol.messages import decoded
from x402sim.protocol.money import to_base, to_decimal
from x402sim.serving.control.client import ControlError
from x402sim.suite import redact
from x402sim.suite.report.exchange import Exchanges
from x402sim.suite.report.results import DemandKey
from x402sim.suite.service import expect
from x402sim.suite.service.answers import (
    CURE_OF_DEPOSITS,
    CURE_OF_IDS,
    Challenge,
    OpenSession,
    Paid,
    TargetAnswer,
    filled,
    read_402,
    shown,
)
from x402sim.suite.service.control_api import (
    ChainView,
    ControlApi,
    Wallets,
    eventually,
)
from x402sim.suite.service.sending import Last, answered, examine_stop, followed, why
from x402sim.suite.service.setting import RestartFailed, Setting
from x402sim.suite.service.target import Deviation, deviations
from x402sim.suite.verdict import CheckFailed, Inconclusive, Lacking, NotApplicable

Seen = TypeVar("Seen")
JSON = {"Content-Type": "application/json"}
BAD_BODY = (400, 422)
"""The statuses for a rejected body."""
POLL_S, POLLS = 0.25, 40
"""Seconds between two checks of a condition, at least, and the most checks within its time."""
OFFER_S = 5.0
"""Seconds for which the 402 of a refusal is used instead of a new one."""
CENT_BASE = 10_000  # a hundredth of the token
WORK_S = 10
"""Seconds for which a target works on due tasks, once its clock was advanced."""


class Probe:
    """One check's access to the target and its surroundings."""

    def __init__(self, setting: Setting, check_id: str = "", *, may_disturb: bool = True) -> None:
        self.setting, self.check_id = setting, check_id
        self.target, self.clock = setting.target, setting.clock
        self.world = ControlApi(setting, may_disturb=may_disturb)
        self.chain = ChainView(setting)
        self.wallets = Wallets(setting, self.world)
        self.observed: list[str] = []
        self.deviations: list[Deviation] = []
        self.last: TargetAnswer | None = None
        self.last_served: TargetAnswer | None = None
        """The last answer with the protected content, as evidence of too many served requests."""

    # --- time --------------------------------------------------------------------------

    async def wait(self, seconds: float) -> None:
        """Let time pass for the target; meanwhile, other checks act.

        A clock that turns is advanced; otherwise the time really passes.
        """
        seconds = max(0.0, seconds)
        if self.setting.advance is None:
            await self.setting.scheduler.waiting(self.clock.sleep(seconds))
            return
        try:
            await self.setting.advance(seconds)
        except ControlError as error:
            raise Inconclusive(f"the target's clock was not advanced: {error}") from error

    async def eventually(
        self,
        look: Callable[[], Awaitable[Seen]],
        within_s: float,
        holds: Callable[[Seen], bool] = bool,
    ) -> Seen:
        """Return an observation as soon as it `holds`, or at the end; meanwhile, other checks act.

        After an advance of the clock, due work still takes the target a moment.
        """
        end_s = self.clock.now() + within_s
        while not holds(seen := await look()):
            if self.clock.now() >= end_s:
                if self.setting.advance is None:
                    return seen
                return await eventually(self.clock, look, holds, within_s=WORK_S)
            await self.wait(max(POLL_S, within_s / POLLS))
        return seen

    async def restart(self) -> None:
        """End the target and start it again; raises `Inconclusive`.

        Where no clock turns, checks share one restart, at the end of the run.
        """
        if self.setting.advance is not None:
            await self.world.post("crash")
        elif self.setting.restart is not None:
            try:
                await self.setting.scheduler.restart(self.setting.restart)
            except RestartFailed as error:
                raise Inconclusive(f"the target was not restarted: {error}") from error
        else:
            raise Lacking("it needs a way to restart the target: give --restart COMMAND")
        self.setting.offers.clear()  # a target may forget unpaid offers

    def observe(self, text: str) -> None:
        """Report the target's behaviour where the specification is silent."""
        self.observed.append(text)

    @property
    def seen(self) -> str:
        """What was observed, and where the target departs from the specification by its file."""
        departs = "; ".join(str(each) for each in dict.fromkeys(self.deviations))
        by_file = [f"as the target file says: {departs}"] if departs else []
        return "; ".join([*self.observed, *by_file])

    @property
    def exchanges(self) -> Exchanges:
        """The last exchange, and the world's faults."""
        last = (self.last.show(),) if self.last else ()
        return (*last, *self.world.faults)

    def by_target(self, *keys: str) -> None:
        """Note the keys of the target file ("pay.spelling") by which an answer is judged.

        If a key departs from the specification, a passed case is observed.
        """
        found = deviations(self.target)
        self.deviations += [found[key] for key in keys if key in found]

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
        """Send a request; raises `Inconclusive` if the exchange breaks, unless it `may_break`.

        With `as_is` the path is sent unchanged, with dots and double slashes.
        """
        if json is not None:
            content = msgspec.json.encode(json)
        http = self.setting.http
        all_headers: dict[str, Any] = {**(JSON if content else {}), **(headers or {})}
        try:
            request = http.build_request(method, path, content=content, headers=all_headers)
        except (UnicodeEncodeError, httpx.InvalidURL) as error:
            what = "an id of the target that was to be sent"
            raise CheckFailed(
                what, "text that a header or a path can have", str(error), demand=DemandKey.FORM
            ) from error
        if self.setting.stopped:
            raise Inconclusive(self.setting.stopped)
        if as_is:
            base = http.base_url.raw_path.rstrip(b"/")
            request.extensions["target"] = base + path.encode()
        target = self.target
        moved = (target.protected.path, target.pay.path, target.sessions.path, target.agents.path)
        send = followed if path.partition("?")[0] in moved and not as_is else answered
        may_retry_503 = not self.world.changed_world
        try:
            response = await send(self.setting, request, may_retry_503=may_retry_503)
        except httpx.TransportError as error:
            return await self._broken(request, error, may_break=may_break)
        self.setting.last = Last(request, self.check_id, f"answered {response.status_code}")
        self.setting.proofs |= redact.ids_in(response.text)
        self.last = TargetAnswer(
            self.target,
            response.status_code,
            response.headers,
            redact.without(response.text, self.setting.options.secrets),
            decoded(response.content),
            self.setting.showing(request, response),
            networks=self.setting.options.networks,
        )
        return self.last

    async def _broken(
        self, request: httpx.Request, error: httpx.TransportError, *, may_break: bool
    ) -> TargetAnswer:
        """Return the broken exchange as an answer; raises if the target has stopped."""
        broken = type(error).__name__
        show = self.setting.showing(request, None, broken)
        self.last = TargetAnswer(self.target, 0, httpx.Headers(), "", None, show, broken)
        last = Last(request, self.check_id, f"not answered ({broken})")
        if not isinstance(error, httpx.ConnectError):
            self.setting.last = last
        if not self.last.is_late:
            await examine_stop(self.setting, error)
        if may_break:
            return self.last
        raise Inconclusive(f"{last.line} was not answered: {why(error)}") from error

    def require_price(self) -> int:
        """Return the price by the target file, in base units; raises `NotApplicable` if open."""
        if not (price_base := self.target.protected.amount_base):
            raise NotApplicable("the target file says that the price is open")
        return price_base

    @property
    def usual_body(self) -> dict[str, Any]:
        """The body of a protected request: an accepted body, or the target file's first."""
        return self.setting.body or self.target.protected.bodies[0]

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

        Without a `body`, send an accepted body. A target that validates bodies after the payment
        accepts or rejects a body only in a paid request.
        """
        headers = core.proofs(payment_id)
        if session_id is not None:
            headers[self.target.sessions.header] = session_id
            self.by_target("sessions.header")
        endpoint = self.target.protected

        async def send(body: Any) -> TargetAnswer:
            answer = await self.send(
                endpoint.method,
                path or endpoint.path,
                json=body if body or endpoint.method != "GET" else None,
                headers=headers,
                may_break=may_break,
            )
            self.last_served = answer if answer.has_content else self.last_served
            return answer

        if body is not None:
            return await send(body)
        usual = self.usual_body
        answer = await send(usual)
        if headers and path is None:
            self._keep_offer(answer)
        others = [other for other in endpoint.bodies if other != usual]
        is_bad = answer.status in BAD_BODY or (answer.status < 300 and not answer.has_content)
        for other in others if headers and is_bad else ():
            again = await send(other)
            if again.has_content:
                self.setting.body = other
                return again
        return answer

    def resources(self, path: str) -> tuple[str, ...]:
        """Return the names that a 402 may give a path: below a base path, with it or without it.

        A service behind a gateway knows only its own part of a path. The target file may name
        another prefix, or another resource for the protected endpoint.
        """
        endpoint = self.target.protected
        own = endpoint.resource or endpoint.path
        prefix = own.removesuffix(endpoint.path) if own.endswith(endpoint.path) else ""
        base = self.setting.http.base_url.path.rstrip("/")
        named = own if path == endpoint.path else prefix + path
        return tuple(dict.fromkeys((named, base + path) if base else (named,)))

    async def unpaid(self) -> TargetAnswer:
        """Request without proof, with an accepted body if any is; return the answer."""
        for body in self.target.protected.bodies if self.setting.body is None else ():
            if (await self.ask(body=body)).status == 402:  # a target may validate bodies first
                self.setting.body = body
                break
        return await self.ask()

    async def challenge(self, *, fresh: bool = False) -> Challenge:
        """Return an unused 402; raises `Inconclusive` if the 402 cannot be paid.

        A refusal of the last seconds came with a 402, which saves a request; a `fresh` 402
        is requested without proof.
        """
        offers = self.setting.offers
        while offers and not fresh:
            since_s, answer = offers.pop()
            if self.clock.now() - since_s <= OFFER_S:
                return read_402(answer)
        challenge = read_402(await self.unpaid())
        self.setting.known_ids.add(challenge.payment_id)
        return challenge

    def _keep_offer(self, answer: TargetAnswer) -> None:
        """Keep the 402 of a refused proof, if its payment id is new."""
        try:
            offered = read_402(answer).payment_id
        except Inconclusive:
            return
        if offered not in self.setting.known_ids:
            self.setting.known_ids.add(offered)
            self.setting.offers.append((self.clock.now(), answer))

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
        """Send a payment to the settlement endpoint; `requirements` replace single fields.

        None leaves a field out.
        """
        body = challenge.settlement(header, requirements)
        if payment_id is not None:
            body["paymentId"] = payment_id
        return await self.send("POST", self.target.pay.path, json=body, may_break=may_break)

    async def settles(
        self, challenge: Challenge, header: str, *, requirements: dict[str, Any] | None = None
    ) -> None:
        """Fail unless a valid payment is settled; raises as `Wallets.expect_settled`."""
        answer = await self.settle(challenge, header, requirements=requirements)
        self.wallets.expect_settled(answer)

    async def opened(self, challenge: Challenge) -> TargetAnswer:
        """Return the answer to a request with a settled payment."""
        return await self.ask(payment_id=challenge.payment_id)

    async def signed(self, **changes: Any) -> tuple[Challenge, Wallet, str]:
        """Return a 402, a payer with funds, and a header that pays, changed as `sign` does."""
        challenge, payer = await self.challenge(), await self.wallets.payer()
        return challenge, payer, self.wallets.sign(challenge, payer, **changes)

    async def buy(self, payer: Wallet | None = None) -> Paid:
        """Pay for the protected resource; raises `Inconclusive` if the payment fails."""
        return await self.pay(await self.challenge(), payer)

    async def pay(self, challenge: Challenge, payer: Wallet | None = None) -> Paid:
        """Pay a 402; raises `Inconclusive` if the payment fails."""
        if payer is None:
            payer = await self.payer_of(challenge)
        header = self.wallets.sign(challenge, payer)
        receipt = await self.settle(challenge, header)
        resource = str(challenge.requirements.get("resource"))
        is_deposit = resource.endswith(self.target.sessions.path)
        if not (receipt.may_be_receipt if is_deposit else receipt.is_receipt):
            raise Inconclusive(f"a valid payment was not settled: {receipt.summary}")
        self.setting.paid_ids.add(challenge.payment_id)
        return Paid(challenge, header, receipt, payer)

    async def payer_of(self, challenge: Challenge) -> Wallet:
        """Return a payer with the money for a 402, and one token more."""
        return await self.wallets.payer(to_decimal(challenge.amount_base + 1_000_000, 6))

    # --- what came of a payment ------------------------------------------------------

    async def expect_nothing(
        self,
        challenge: Challenge,
        payer: Wallet,
        answer: TargetAnswer,
        *texts: str,
        is_402: bool = False,
    ) -> None:
        """Fail unless a payment was refused (with one of the texts), and moved and grants nothing.

        With `is_402`, a request with the payment id must be answered 402.
        """
        expect.refused(answer, *texts)
        expect.not_served(await self.opened(challenge), is_402=is_402)
        await self.world.expect_payments(payer)

    async def expect_refused_if(
        self,
        payer: Wallet,
        *texts: str,
        of: Challenge | None = None,
        sent: dict[str, Any] | None = None,
        **signed: Any,
    ) -> None:
        """Pay with changes of what is `signed`, and of the requirements `sent` back.

        Fails unless `expect_nothing` comes of it; without `of`, the payment is of a new 402, whose
        id must get a 402 afterwards.
        """
        challenge = of or await self.challenge()
        header = self.wallets.sign(challenge, payer, **signed)
        answer = await self.settle(challenge, header, requirements=sent)
        await self.expect_nothing(challenge, payer, answer, *texts, is_402=of is None)

    async def expect_nothing_or_as_issued(
        self, challenge: Challenge, payer: Wallet, answer: TargetAnswer
    ) -> bool:
        """Fail unless a payment for the resource came to nothing, or was settled as issued.

        As issued: the amount of the 402 moved to its payee, once, and opens the resource. Without
        a world, the transfers are unknown. Returns whether the payment was settled.
        """
        if not answer.is_receipt:
            await self.expect_nothing(challenge, payer, answer)
            return False
        if self.world.exists:
            await self.world.expect_paid("what was settled, on the ledger", challenge, payer)
        expect.served(await self.opened(challenge))
        return True

    async def record_of(self, paid: Paid) -> dict[str, Any]:
        """Return a payment's stored record, with the names of 2.4; raises `Inconclusive`."""
        path = filled(self.target.record.path, "paymentId", paid.challenge.payment_id)
        answer = await self.send("GET", path)
        record = shown(answer.body, "payment_id")
        if answer.status != 200 or record is None:
            raise Inconclusive(f"the payment record cannot be read: {answer.summary}")
        return record

    # --- sessions --------------------------------------------------------------------

    async def budget_for(self, requests: int) -> str:
        """Return the smallest maxSpend for at least this many protected requests."""
        smallest_base = to_base(self.target.sessions.smallest, 6)
        wanted_base = max(requests * (await self.challenge()).amount_base, smallest_base)
        return to_decimal(-(-wanted_base // CENT_BASE) * CENT_BASE, 6)

    async def ask_session(
        self, max_spend: Any, duration: Any = None, *, payment_id: str | None = None
    ) -> TargetAnswer:
        """Request a session, or claim a session whose deposit the payment id proves."""
        sessions = self.target.sessions
        proof = core.proofs(payment_id)
        if payment_id is not None and sessions.claim == "get":
            path = filled(sessions.claim_path, "paymentId", payment_id)
            return await self.send("GET", path, headers=proof)
        body = {
            "maxSpend": max_spend,
            "duration": sessions.duration if duration is None else duration,
        }
        answer = await self.send("POST", sessions.path, json=body, headers=proof)
        is_refused = answer.status < 500 and answer.status != 402 and payment_id is None
        return replace(answer, cure=CURE_OF_DEPOSITS) if is_refused else answer

    async def deposit(self, requests: int) -> tuple[str, Challenge]:
        """Return the maxSpend of a session for this many requests, and the 402 of its deposit."""
        max_spend = await self.budget_for(requests)
        return max_spend, read_402(await self.ask_session(max_spend))

    async def open_session(
        self, max_spend: str, payer: Wallet | None = None, *, duration: int | None = None
    ) -> OpenSession:
        """Pay a deposit and find the session's id; raises `Inconclusive`."""
        challenge = read_402(await self.ask_session(max_spend, duration))
        return await self.claim(await self.pay(challenge, payer), max_spend, duration)

    async def claim(self, paid: Paid, max_spend: str, duration: int | None = None) -> OpenSession:
        """Find the id of the session whose deposit is paid; raises `Inconclusive`."""
        answer, payment_id = paid.receipt, paid.challenge.payment_id
        if self.target.sessions.claim != "receipt":
            answer = await self.ask_session(max_spend, duration, payment_id=payment_id)
        session_id = paid.receipt.session_id or answer.session_id
        if session_id is None:
            raise Inconclusive(
                "no session id in the receipt of the deposit, nor in the answer to its claim: "
                f"{answer.summary}{CURE_OF_IDS}"
            )
        return OpenSession(session_id, paid, answer)

    async def drain(self, session_id: str, at_most: int) -> int:
        """Send requests one by one until a request is refused; return how many were served."""
        served = 0
        while served < at_most and (await self.ask(session_id=session_id)).has_content:
            served += 1
        return served

    async def expect_no_session(self, *answers: TargetAnswer) -> None:
        """Fail if a session of these answers can be spent."""
        for session_id in dict.fromkeys(each.session_id for each in answers if each.session_id):
            expect.withheld(await self.ask(session_id=session_id))
