"""`PaymentAuth`: httpx authentication that pays a 402, for sync and async clients.

`PaymentAuth` answers a 402 by signing, settling and repeating the request; at a server of the x402
standard the repeated request itself pays. `signing.py` decides what may be signed. This file
decides when: never for a resource whose earlier payment may still settle, or was settled and has
bought nothing yet. `reading.read_settlement` and `standard.read_refusal` decide from the server's
error, and from `purchases.EXPIRY_MARGIN_S`, whether to send an authorization again.
Clauses: 1/sign-settle-repeat.
"""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx
import msgspec

from x402sim.clock import Clock
from x402sim.http.bounded import MIB, Limits
from x402sim.payer.body import on_body_end
from x402sim.payer.core import (
    PAY_PATH,
    PAYMENT_ID_HEADER,
    PaidNotServed,
    PaymentFailed,
    proofs,
)
from x402sim.payer.flow import (
    Flow,
    FlowAuth,
    Send,
    Step,
    post,
    send,
    shown_in_vain,
)
from x402sim.payer.node import ask_allowance, sponsors_permits
from x402sim.payer.purchases import (
    Payment,
    ResourcePayments,
    State,
    Unfinished,
    purchase_key,
)
from x402sim.payer.reading import (
    UNKNOWN,
    AttemptOver,
    is_inconclusive,
    read_settlement,
    shortened,
)
from x402sim.payer.signing import Signer, StandardOffer
from x402sim.payer.standard import (
    ForeignRequired,
    foreign_required,
    log,
    read_refusal,
    read_required,
    read_standard,
    settlement_in,
)
from x402sim.payer.stored import NotStored, Record, Stored
from x402sim.payer.wallet import AFTER_SIGNING_S, Wallet
from x402sim.protocol.messages import BadMessage, PaymentRequired, Receipt
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import NETWORKS, TESTNET, Network, networks_of
from x402sim.protocol.permit2_payments import pays_by_permit2
from x402sim.protocol.ways import foreign_in, ways_in
from x402sim.protocol.x402 import PROOF_HEADERS, VERSIONS, AnyRequired, Settlement, Version

MAX_AMOUNT = "0.10"
"""The most that is paid at once, unless the user says otherwise."""
DEADLINE_S = 120.0
"""Seconds for a purchase: more than a service waits for its facilitator."""


T = TypeVar("T")
Served = Callable[[httpx.Response], bool]
Sending = Generator[Step, httpx.Response | None, httpx.Response | None]
"""Sends a payment, and returns the answer if the exchange ends with it. Else the payment is now
UNSERVED, and its proof is shown next; or OVER, and another may be signed."""
Required = dict[Network, PaymentRequired | AnyRequired]
_TEST_NETWORKS = {
    name: each
    for name, each in NETWORKS.items()
    if each.is_test and each.decimals == TESTNET.decimals  # one cap holds for all
}
"""The networks that are paid unless the user names one."""


def _is_goods(response: httpx.Response) -> bool:
    """Whether an answer is paid goods: a success, or a redirect (or 304) with a receipt, also if
    the client has followed it.
    """
    return response.is_success or any(map(_receipt_in, _redirects(response)))


def _redirects(response: httpx.Response) -> list[httpx.Response]:
    return [each for each in (response, *response.history) if each.is_redirect]


def _receipt_in(response: httpx.Response) -> Settlement | None:
    found = (settlement_in(response, version) for version in VERSIONS)
    return next((each for each in found if each is not None and each.success), None)


class Order(msgspec.Struct, frozen=True):
    """A caller's request, and the payments for the resource so far.

    `is_served` decides whether an answer is the paid goods. `shown` is the header of a proof in the
    caller's request: the caller has paid, so the payer signs nothing.
    """

    step: Send
    resource: str
    payments: ResourcePayments
    is_served: Served
    shown: str
    stored: Stored | None
    sent_proof: dict[str, str]
    """The headers of proofs that this purchase has put on the request."""

    def store(self, *, is_over: bool = False, must: bool = False) -> None:
        """Write the unfinished payments to the payer's `state_dir`, and warn if that fails.

        The folder has an earlier state then, from which a restart sends the same payment again. A
        payment that `must` be stored, before it is sent, raises as `Stored.write`: nothing is sent.
        The flow, or the reading of a body, lets go of the folder when it `is_over`.
        """
        if self.stored is None:
            return
        try:
            self.stored.write(
                lambda: Record(url=self.resource, unfinished=self.payments.unfinished()),
                is_over=is_over,
            )
        except PaymentFailed as failed:
            if must:
                todo = "Repeat the request when the folder can be written"
                raise type(failed)(f"{failed.why}; nothing was sent", todo) from failed
            log.warning("%s; after a restart, the payment stored there is sent again", failed)


class PaymentAuth(FlowAuth):
    """An httpx auth that pays when a server answers 402, and repeats the request.

    In two steps the payer signs, posts the payment to /api/pay, and repeats the request with
    X-Payment-Id (1/sign-settle-repeat). At a server of the x402 standard one step pays: the request
    is repeated with the payment in PAYMENT-SIGNATURE (version 2) or X-PAYMENT (version 1). A server
    that offers both is paid in two steps, unless `version` is 1 or 2. Of several offers, the payer
    takes the first offer that it can pay. In one step each request pays; `reuse`
    means nothing there, and `settlements` has the servers' receipts.

    `max_amount` caps one payment and `max_total` everything this object ever signs, both as decimal
    strings of the token ("0.10"). A signed authorization counts, used or not, because only the
    chain can tell; a payer that runs for long needs more than the default. An
    authorization may be used for `max_window_s` after it is signed (default 300, as in two steps),
    or less if the server says so. A payment id is used again for the same resource unless `reuse`
    is False. A resource is a path of one server (host and port). Each session (`maxSpend` and
    `duration`) is a resource, too: no session is shown for another.

    Nothing is signed for a request that brings a proof of payment, such as X-Payment-Id. While an
    authorization may be used (until `EXPIRY_MARGIN_S` after validBefore), the next request for the
    resource sends the same authorization again, after a lost answer or a refusal. So a server that
    refuses payments holds at most one usable authorization for each resource, all within
    `max_total`. Later the payer signs another only if the server refuses both the first and the
    payment id; a 5xx or no answer leaves the payment unresolved. A server that reports the nonce as
    used or the payment as settled has been paid: nothing more is signed. Unfinished payments are
    remembered by host and port: a server that restarts on another port is paid anew.

    `state_dir` is a folder for the unfinished payments, each stored before it is sent. A payment
    that cannot be stored is not sent, and counts for no cap unless the folder may have it. After a
    restart, another object with this folder sends the payments again instead of signing. A purchase
    that another object has begun from the folder, and not ended, raises `PaymentFailed`. Without a
    folder, only this object remembers.

    With `permit2`, offers of the scheme `upto` (at most an amount, settled for what was used) and
    of `exact` by Permit2 are paid, too, if no other of the version read can be. The maximum counts
    for both caps, for good. Nothing here approves Permit2: a server that misses the approval
    answers 412 or 402, and the error says how much to approve. With `approve`, an amount of tokens,
    and `rpc_url`, a node of the only `network`, a payment up to this amount brings a permit
    (EIP-2612), if Permit2 may take too little and the server offers `eip2612GasSponsoring`. The
    permit is for Permit2 alone, with the amount and the end of the payment.

    `network` is a `Network`, or a name such as "base-sepolia": nothing is paid elsewhere. By
    default every test network of our table is paid, in the order of the offers; both caps hold for
    all of them together. A main network, with real money, is paid only if it is named.

    A payment has bought something when the caller has read the answer's body to the end; the answer
    is a success, or a redirect with a receipt, which the caller may follow. If the body breaks off,
    or the caller closes the answer earlier, the next request sends the same payment again. While a
    body is being read, other requests pay for themselves, in two steps if the server refuses the
    payment id; an answer dropped without being closed, or whose close an exception such as
    KeyboardInterrupt interrupts, counts as being read.

    A server that takes a payment and answers 402 again gets no second payment for the resource: at
    most `max_unserved` payments (default 1) may have bought nothing yet, beside those whose answers
    are being read. Requests for one resource therefore pay one after the other.

    The payer reads at most `max_answer_bytes` of a 402 or of the answer to a settlement. A call
    takes at most `deadline_s` seconds until the head of its answer arrives; waiting for other
    requests, and every answer and redirect of the purchase, count. The paid body has only the
    timeouts of the caller's client, which hold before, too. With a sync client each timeout, and
    the deadline, is rounded up to whole seconds, and a look-up of a host's name cannot be
    interrupted. Proofs of payment follow at most three redirects, and none to another origin.

    A 402 of another protocol (such as `WWW-Authenticate: Payment` or L402), or a plain bill, goes
    back to the caller, unpaid, with the body; `foreign` and a warning in the log `x402sim.payer`
    name the protocol.

    One object may serve many requests at once, in threads or tasks. A forked process makes an
    object of its own: the copy raises `PaymentFailed`. A payment id is proof of
    payment for anyone who has it. Raises `SpendingCapExceeded`, `PaidNotServed` and
    `PaymentFailed` out of the client's call, and httpx's own errors where a connection breaks.
    """

    def __init__(
        self,
        wallet: Wallet,
        *,
        max_amount: str = MAX_AMOUNT,
        max_total: str = "1.00",
        network: Network | str | None = None,
        state_dir: str | Path | None = None,
        reuse: bool = True,
        max_unserved: int = 1,
        max_window_s: int = AFTER_SIGNING_S,
        pay_path: str = PAY_PATH,
        version: Version | None = None,
        clock: Clock | None = None,
        max_answer_bytes: int = MIB,
        deadline_s: float = DEADLINE_S,
        permit2: bool = False,
        approve: str = "0",
        rpc_url: str = "",
    ) -> None:
        self.wallet = wallet
        self.network = TESTNET if network is None else networks_of(network)[0]
        """The only network that is paid; by default the first of several."""
        self._networks = _TEST_NETWORKS if network is None else {self.network.name: self.network}
        self.clock = clock or Clock()
        self.signer = Signer(
            wallet,
            self.network,
            max_amount=max_amount,
            max_total=max_total,
            max_window_s=max_window_s,
            clock=self.clock,
            approve=approve,
        )
        if self.signer.approve_base and not (permit2 and rpc_url and network):
            raise ValueError(
                "approve: give permit2=True, network, and rpc_url, a node of its chain"
            )
        self._permit2, self._rpc_url = permit2, rpc_url
        self.max_unserved = max_unserved
        """How many payments for one resource may have bought nothing yet."""
        self.receipts: list[Receipt] = []
        """The receipts of POST /api/pay. After a lost answer, the retried POST reports only that
        the payment is settled: GET /api/payments/ID has the transaction, and the request's header
        X-Payment-Id the id."""
        self.settlements: list[Settlement] = []
        self.foreign: list[ForeignRequired] = []
        """The 402s of other protocols, which went back to the caller unpaid."""
        self.version = version
        """The version of the standard to pay in; None for two steps where the server offers them,
        and else the newest version offered."""
        self.limits = Limits(max_answer_bytes=max_answer_bytes, deadline_s=deadline_s)
        self._reuse = reuse
        self._pay_path = pay_path
        self._payments: dict[tuple[str, ...], ResourcePayments] = {}
        """By `purchase_key`."""
        self._state_dir = None if state_dir is None else Path(state_dir).absolute()
        self._stored: dict[tuple[str, ...], Stored] = {}
        self._sent_proofs = WeakKeyDictionary[httpx.Request, dict[str, str]]()
        """The proofs on each request from this object, not from the caller."""
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        amounts = self.signed_base, self.signer.max_total_base
        signed, total = (to_decimal(each, self.network.decimals) for each in amounts)
        where = ", ".join(self._networks)
        return f"<PaymentAuth of {self.wallet.address} on {where}: signed {signed} of {total}>"

    @property
    def signed_base(self) -> int:
        """The amount signed for so far, in base units: used or not."""
        return self.signer.signed_base

    def exchange(
        self,
        request: httpx.Request,
        *,
        is_own: bool = False,
        is_served: Served = _is_goods,
    ) -> Flow:
        """Yield the steps of one paid exchange, and return its last answer.

        `is_served` returns whether an answer is the paid goods.
        """
        if os.getpid() != self._pid:
            raise PaymentFailed(
                f"this payer was made in process {self._pid}, and a fork has copied its caps and "
                "payments; nothing was signed",
                "Make a payer in each process; payers with one state_dir share unfinished payments",
            )
        key = purchase_key(request)
        with self._lock:
            sent_proof = self._sent_proofs.setdefault(request, {})
            payments, stored = self._payments.setdefault(key, ResourcePayments()), None
            if self._state_dir is not None:
                name = repr((self.wallet.address, *key))
                stored = self._stored.setdefault(key, Stored(self._state_dir, "auth", name))
        for name, proof in sent_proof.items():
            if request.headers.get(name) == proof:  # the caller sends the request again
                del request.headers[name]
        sent_proof.clear()
        callers = {each: request.headers[each] for each in PROOF_HEADERS if each in request.headers}
        shown = next(iter(callers), "")
        order = Order(Send(request, is_own), key[0], payments, is_served, shown, stored, sent_proof)
        response, sent_id = None, None if shown else payments.granted
        if shown or sent_id is not None or not payments.unserved:
            response = yield from _send(order, proofs(sent_id))
            if response.status_code != 402:
                return response
        yield payments.lock
        try:
            if stored is not None and stored.take():
                try:
                    self.signer.take_over(payments, stored.record.unfinished, is_all=True)
                except PaymentFailed:
                    stored.release()
                    raise
            try:
                return (yield from self._exchange(order, response, sent_id))
            finally:
                request.headers.update(callers)  # ours have taken the place of some
                order.store(is_over=True)
        finally:
            payments.lock.release()

    def _exchange(self, order: Order, response: httpx.Response | None, sent_id: str | None) -> Flow:
        """Show an earlier payment, or buy; `response` is the 402, `sent_id` the id shown for it."""
        payments = order.payments
        payments.reopen()
        if payments.granted not in (None, sent_id):  # another request has paid meanwhile
            response = yield from _send(order, proofs(payments.granted))
        elif unserved := payments.unserved:
            response = yield from self._show(order, unserved)
        elif response is None:  # another request was served meanwhile
            response = yield from _send(order, {})
        if response.status_code == 402:
            response = yield from self._buy(order, response)
        return response

    def unfinished(self, request: httpx.Request) -> Unfinished:
        """Return the signed, unfinished payments for a request, to `resume` in another object."""
        with self._lock:
            payments = self._payments.get(purchase_key(request))
        return Unfinished() if payments is None else payments.unfinished()

    def resume(self, request: httpx.Request, unfinished: Unfinished) -> None:
        """Take over another object's unfinished payments, beside those of this object.

        Every amount signed for the purchase counts for `max_total`, expired or not. Raises
        `ValueError` with a `state_dir`, which remembers by itself.
        """
        if self._state_dir is not None:
            raise ValueError(f"resume: the unfinished payments are those of {self._state_dir}")
        with self._lock:
            payments = self._payments.setdefault(purchase_key(request), ResourcePayments())
        self.signer.take_over(payments, unfinished)

    def _buy(self, order: Order, response: httpx.Response) -> Flow:
        """Pay a 402, if no earlier payment for the resource forbids it; raises `PaymentFailed`."""
        payments = order.payments
        payments.granted = None
        # what is settled is shown first; another is signed only when each is over
        while not payments.unshown and (unresolved := payments.all(State.UNRESOLVED)):
            answer = yield from self._resend(order, unresolved[0])
            if answer is not None:
                return answer
        if not payments.unshown:
            if len(payments.unserved) >= self.max_unserved:
                raise self._not_served(order)
            if (other := foreign_required(order.resource, response)) is not None:
                self.foreign.append(other)
                return response
            required = self._read(order.step.request, response)
            if order.shown:
                raise shown_in_vain(order.step.request.url, order.shown)
            payment = yield from self._sign(required)
            payments.open.append(payment)
            answer = yield from self._settle(order, payment)
            if answer is not None:
                return answer
        response = yield from self._show(order, payments.unshown)
        if response.status_code == 402:
            raise self._not_served(order)
        return response

    def _read(self, request: httpx.Request, response: httpx.Response) -> Required:
        """Return what a 402 requires on each payable network; raises `PaymentFailed` for none."""
        ways = ways_in(response.headers, response.content)
        offered = filter(None, (way.network(self._networks) for way in ways))
        found: Required = {}
        for network in dict.fromkeys(offered) or [self.network]:
            try:
                found[network] = read_required(request, response, network, self.version)
            except PaymentFailed as wrong:
                failed = wrong
                with suppress(BadMessage):  # the body of version 2 is the seller's
                    if (standard := read_standard(response, self.version)) is not None:
                        found[network] = standard
        if not found:
            raise failed
        return found

    def choose(
        self, request: httpx.Request, response: httpx.Response
    ) -> PaymentRequired | StandardOffer:
        """Return the offer of a 402 that this object would sign now, without signing.

        Raises `PaymentFailed`, with the same text as a purchase.
        """
        if (other := foreign_in(response.headers, response.content)) is not None:
            raise PaymentFailed(f"the 402 is {other.name}", other.do)
        return self._first(self._read(request, response), self.signer.chosen)

    def _sign(self, required: Required) -> Generator[Step, httpx.Response | None, Payment]:
        """Sign the first offer within the caps; raises the `PaymentFailed` of the last without."""
        allowed = None
        if self.signer.approve_base and any(map(sponsors_permits, required.values())):
            offer = self._first(required, self.signer.chosen)
            if isinstance(offer, StandardOffer) and pays_by_permit2(offer.accepted):
                owner = self.wallet.address_bytes
                allowed = yield from ask_allowance(self._rpc_url, self.network, owner)
        return self._first(required, partial(self.signer.sign, allowed=allowed))

    def _first(self, required: Required, act: Callable[[Any, Network, bool], T]) -> T:
        """Act on what a 402 requires on a network, the first that does not fail; offers by Permit2
        come last. Raises the `PaymentFailed` of the last.
        """
        kinds = (False, True) if self._permit2 else (False,)
        *others, last = [(network, permit2) for permit2 in kinds for network in required]
        for network, permit2 in others:
            with suppress(PaymentFailed):
                return act(required[network], network, permit2)
        return act(required[last[0]], *last)

    def _show(self, order: Order, unserved: list[Payment]) -> Flow:
        """Send the proofs of payments that bought nothing yet, the newest first, until a proof is
        not refused.
        """
        for payment in reversed(unserved):
            response = yield from _send(order, payment.proof)
            payment.was_refused = response.status_code == 402
            if not payment.was_refused:
                self._note_served(order, payment, response)
                break
        return response

    def _note_served(self, order: Order, payment: Payment, response: httpx.Response) -> None:
        if not order.is_served(response):
            return
        granted = None
        if self._reuse and payment.version is None:
            granted = order.payments.granted = payment.proof[PAYMENT_ID_HEADER]
        _await_body_end(order, payment, response, granted)

    def _not_served(self, order: Order) -> PaidNotServed:
        """Return the error of a server that took payments and answers 402 again."""
        paid = " and ".join(each.was_paid for each in order.payments.unserved)
        return PaidNotServed(
            f"{order.resource} {paid}, and answers 402 again; nothing more was signed",
            "Repeat the request: it shows the same payment again. To pay once more, raise "
            f"max_unserved (now {self.max_unserved})",
        )

    def _resend(self, order: Order, payment: Payment) -> Sending:
        """Send the unresolved payment again; raises `PaymentFailed` if it stays unresolved.

        An expired payment is tried once as proof, in case the server has been paid after all: any
        answer but a 402 is returned.
        """
        try:
            return (yield from self._settle(order, payment))
        except AttemptOver:
            if payment.version is not None:  # with a hint: paid, but its answer broke off
                payment.state = State.UNSERVED if payment.hint else State.OVER
                return None
        response = yield from _send(order, payment.proof)
        if response.status_code == 402:
            payment.state = State.OVER
            return None
        if not is_inconclusive(response):
            payment.hint = f"{response.status_code} when it was shown"
            payment.state = State.UNSERVED
            self._note_served(order, payment, response)
        return response

    def _settle(self, order: Order, payment: Payment) -> Sending:
        """Send a payment; raises `AttemptOver` or `PaymentFailed` unless the payment is settled.

        In one step, the answer to the paying request is returned, unless the answer is a 402. The
        payment stays UNRESOLVED unless the answer is final, also if the connection breaks: httpx
        then closes this generator.
        """
        payments, sent, sent_s = order.payments, payment.sent, payment.sent_s
        payment.sent, payment.sent_s = sent + 1, self.clock.now_s()
        try:
            order.store(must=True)
        except BaseException as error:  # nothing was sent
            payment.sent, payment.sent_s = sent, sent_s
            if sent and isinstance(error, PaymentFailed):
                raise PaymentFailed(error.why, payment.retry_advice) from error
            if isinstance(error, NotStored) and not sent:  # else the file may have the payment
                payments.open.remove(payment)
                self.signer.take_back(payment)
            raise
        payments.give_up()
        if payment.version is None:
            request = post(order.step.request, self._pay_path, payment.settlement)
            try:
                made = read_settlement((yield from send(Send(request, True))), payment)
            except httpx.HTTPError as error:
                raise PaymentFailed(f"{UNKNOWN}: {error}", payment.retry_advice) from error
        else:
            response = yield from _send(order, payment.proof, payment)
            if response.status_code != 402 or order.is_served(response):
                self._note_answer(order, payment, response)
                return response
            made = read_refusal(response, payment.version, payment)
        payment.receipt, payment.hint, payment.state = made.receipt, made.hint, State.UNSERVED
        if made.receipt is not None:
            self.receipts.append(made.receipt)
        order.store()  # settled: after a restart, too, it is shown until it has bought something
        return None

    def _note_answer(self, order: Order, payment: Payment, response: httpx.Response) -> None:
        """Note the answer to a payment in one step; raises `PaymentFailed` for a 412."""
        if response.status_code == 412 and payment.by_permit2:
            raise PaymentFailed(f"the server answers 412: {payment.approval}", payment.retry_advice)
        if order.is_served(response):
            _await_body_end(order, payment, response)
        found = map(_receipt_in, (response, *_redirects(response)))
        if (receipt := next(filter(None, found), None)) is not None:
            self.settlements.append(shortened(receipt))


def _await_body_end(
    order: Order,
    payment: Payment,
    response: httpx.Response,
    granted: str | None = None,
) -> None:
    """Count a payment as not served if nobody reads the answer's body to the end.

    Until the end the payment counts as served, so that other requests pay for themselves: a caller
    may read two streams at once.
    """
    payments, is_held = order.payments, False

    def ended(is_whole: bool) -> None:
        if payment.state is not State.READING:  # an interrupt has ended it already
            return
        if not is_whole:
            payment.hint = payment.hint or f"{response.status_code}, not read to its end"
        payments.end_reading(payment, granted, is_whole=is_whole)
        if is_held:
            order.store(is_over=True)

    try:
        payments.begin_reading(payment)
        if order.stored is not None:
            order.stored.hold()
            is_held = True
        on_body_end(response, ended)
    except BaseException:  # such as Ctrl-C, here of all places: nobody reads the body
        ended(False)
        raise


def _send(order: Order, proof: dict[str, str], paying: Payment | None = None) -> Flow:
    """Send the caller's request with a proof; in one step, `paying` is the proof's payment."""
    request = order.step.request
    for name in order.sent_proof.keys() - proof.keys():  # of a payment that is over
        request.headers.pop(name, None)
    order.sent_proof.update(proof)
    request.headers.update(proof)
    try:
        response = yield from send(order.step)
    except httpx.HTTPError as error:
        why = f"the answer cannot be read: {error}"
        if paying is None:
            raise PaymentFailed(why, "Nothing more was signed") from error
        raise PaymentFailed(f"{why}. {UNKNOWN}", paying.retry_advice) from error
    return response
