"""What must hold at the end of every run, from the ledger and from what services answer?

Written apart from the service's code: it reads the chain's logs, the journal, and asks over HTTP;
it never reads a database. The world must be at rest: no faults, no third parties, every header
expired, every session ended, every block deep.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from x402sim.explore.book import Book, Key, Presented
from x402sim.explore.case import Service, Skew, Submit
from x402sim.explore.evidence import Ledger, Times, Use
from x402sim.explore.steps import Scene
from x402sim.protocol.refusals import Refusal
from x402sim.world.story.payer import QUOTE, SESSIONS, Answer

PRICE_BASE = 10_000
CLOCK_S = 60
"""The greatest error of a service's clock, in seconds, with which every law holds."""
_NOT_ACCEPTED = "nothing was sent to the facilitator"
"""The reason of a service whose node is silent: it has not accepted the header."""
LATE_S = 1_300.0
"""Time for a session that opened during the audit: 600 s at most, and its refund."""


class Law(Enum):
    """The invariants of a finished run; the value is one sentence."""

    PAID_IS_SERVED = "money that moved to the merchant gives access, or was refunded"
    FINAL_IS_FINAL = "a header that was refused for good is not charged afterwards"
    SERVED_IS_PAID = "access is granted only while the money for it stands on the chain"
    RECORD_NAMES_IT = "the record of a payment names the transaction that paid it"
    ONE_TRANSFER_PAYS_ONCE = "one transfer pays for one payment id, at one deployment"
    RECEIPT_STAYS = "a receipt is never taken back while its money stands on the chain"
    REFUND_ARRIVES_ONCE = "every refund owed has arrived, once"
    DEBITS_ARE_SERVED = "a session pays for what was served, and for nothing that was not asked"
    RESOLVED = "no payment is pending after its authorization has expired"
    NO_SERVER_ERROR = "a service answers no 5xx but the 502 and 503 that are documented"
    NO_EXCEPTION = "no task raises"
    TIME_PASSES = "time passes, and nothing waits for ever"
    DURING_THE_RUN = "the invariants that are checked after every event"


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that a run broke, and how."""

    law: Law
    how: str


@dataclass(frozen=True, slots=True)
class Granted:
    """What a service answers at the end for one of its payment ids."""

    key: Key
    access: bool
    """Whether X-Payment-Id is accepted, before the header was presented again."""
    access_after: bool
    """Whether it is accepted after that."""
    again: Answer | None
    record: dict[str, object]
    """Its status before the header was presented again, and its tx_hash after."""
    session: dict[str, object]


@dataclass(slots=True)
class Audit:
    """The evidence of one run, and what follows from it."""

    scene: Scene
    ledger: Ledger
    times: Times
    granted: dict[Key, Granted] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """How many authorizations came to what: "served", "raced", "submitted before presented"."""

    @property
    def book(self) -> Book:
        """What the payers know."""
        return self.scene.book

    def violations(self) -> list[Violation]:
        """Return every law that this run broke."""
        return [
            *self._payments(),
            *self._grants(),
            *self._receipts(),
            *self._refunds(),
            *self._debits(),
        ]

    # --- one authorization ---------------------------------------------------------------

    def _payments(self) -> Iterator[Violation]:
        for nonce, shown in self.book.authorizations().items():
            use = self.ledger.uses.get(nonce)
            fitting = [each for each in shown if each.fits]
            served = [each for each in shown if self._is_served(each)]
            yield from self._paid_once(nonce, served)
            if use is None or use.canceled or not fitting or not _pays(use, fitting[0]):
                continue
            if served:
                self.counts["served"] += 1
            else:
                yield from self._not_served(nonce, use, fitting)

    def _is_served(self, each: Presented) -> bool:
        """Tell whether a payment id has access, and this authorization is what paid for it."""
        granted = self.granted[each.key]
        if not granted.access_after:
            return False
        rivals = [other for other in self.book.presented if other.key == each.key]
        if len(rivals) == 1:
            return True
        use = self.ledger.uses.get(each.signed.nonce)
        return use is not None and granted.record.get("tx_hash") == use.tx_hash

    def _not_served(self, nonce: str, use: Use, fitting: list[Presented]) -> Iterator[Violation]:
        """Judge a transfer that gives no access: whose fault is it?"""
        if nonce in self.times.canceled:
            self.counts["paid after a reorganisation undid its cancellation"] += 1
            return
        where = ", ".join(" of ".join(reversed(each.key)) for each in fitting)
        said = "; ".join(
            f"{each.key[0]}: {answer.status} {answer.error} {answer.reason[:80]}"
            for each in fitting
            for answer in [*each.answers, self.granted[each.key].again]
            if answer is not None
        )
        how = f"{use.tx_hash} paid for {where}, which gives no access ({said})"
        if self._clock_was_wrong() and not any(each.tx_hashes for each in fitting):
            self.counts["not served: the service's clock was wrong"] += 1
            return
        if all(self._was_too_late(each) for each in fitting):
            self.counts["presented only after its end, to a chain whose clock is behind"] += 1
        elif any(self._was_known(nonce, each) for each in fitting):
            yield Violation(Law.PAID_IS_SERVED, how)
        elif any(self._was_refused_before(nonce, each) for each in fitting):
            yield Violation(Law.FINAL_IS_FINAL, how)
        else:
            self.counts["submitted before presented"] += 1

    def _was_too_late(self, each: Presented) -> bool:
        """Tell whether a header was presented only after its validBefore, and never settled."""
        end_ms = each.signed.authorization.valid_before * 1000
        is_sent = each.service in self.times.settled_by.get(each.signed.nonce, ())
        return (
            not is_sent
            and not each.tx_hashes
            and all(self.times.sent_ms[answer.exchange] >= end_ms for answer in each.answers)
        )

    def _clock_was_wrong(self) -> bool:
        """Tell whether a third party acted while a service's clock was off by over a minute.

        Such a service cannot know whether a header is still valid, or which came first.
        """
        steps = self.scene.case.steps
        return any(isinstance(step, Submit) for step in steps) and any(
            isinstance(step, Skew) and step.actor == "service" and abs(step.seconds) > CLOCK_S
            for step in steps
        )

    def _was_known(self, nonce: str, each: Presented) -> bool:
        """Tell whether a service knew of an authorization before it was used on the chain.

        It had it settled, gave a receipt, or said that it may still be paid while it was unused.
        """
        return (
            each.service in self.times.settled_by.get(nonce, ())
            or bool(each.tx_hashes)
            or any(
                answer.body.get("final") is False
                and _NOT_ACCEPTED not in answer.reason
                and not self.times.is_used_at(nonce, self.times.ended_ms[answer.exchange])
                for answer in each.answers
            )
        )

    def _was_refused_before(self, nonce: str, each: Presented) -> bool:
        """Tell whether a final refusal came before the authorization was used on the chain."""
        used_ms = self.times.first_used_ms(nonce)
        return any(
            answer.body.get("final") is True
            and answer.error != Refusal.ALREADY_SETTLED.text
            and self.times.ended_ms[answer.exchange] < used_ms
            for answer in each.answers
        )

    def _paid_once(self, nonce: str, served: list[Presented]) -> Iterator[Violation]:
        """One transfer pays once; at two deployments only if both were asked before a block."""
        keys = {each.key for each in served}
        if len(keys) < 2:
            return
        how = f"authorization {nonce[:12]} pays for {sorted(keys)}"
        services = {service for service, _ in keys}
        if len(services) < len(keys):
            yield Violation(Law.ONE_TRANSFER_PAYS_ONCE, how)
        elif all(self._was_in_time(nonce, each) for each in served):
            self.counts["raced"] += 1
        else:
            yield Violation(Law.ONE_TRANSFER_PAYS_ONCE, how)

    def _was_in_time(self, nonce: str, each: Presented) -> bool:
        """Tell whether a deployment was asked while the authorization was still unused."""
        return any(self.times.was_unused_during(nonce, answer.exchange) for answer in each.answers)

    # --- one payment id ------------------------------------------------------------------

    def _grants(self) -> Iterator[Violation]:
        for key, granted in self.granted.items():
            shown = [each for each in self.book.presented if each.key == key]
            paid = {
                use.tx_hash
                for each in shown
                if (use := self.ledger.uses.get(each.signed.nonce)) and _pays(use, each)
            }
            record = granted.record
            if granted.access_after and not paid:
                yield Violation(Law.SERVED_IS_PAID, f"{key} gives access, but no money stands")
            if granted.access_after and paid and record.get("tx_hash") not in paid:
                how = f"the record of {key} names {record.get('tx_hash')}, not {sorted(paid)}"
                yield Violation(Law.RECORD_NAMES_IT, how)
            if record.get("status") == "pending":
                yield Violation(Law.RESOLVED, f"{key} is pending for ever")

    def _receipts(self) -> Iterator[Violation]:
        for each in self.book.presented:
            use = self.ledger.uses.get(each.signed.nonce)
            if not each.tx_hashes or use is None or not _pays(use, each):
                continue
            granted = self.granted[each.key]
            if not granted.access:
                again = granted.again
                said = f"{again.status} {again.error}" if again else "nothing"
                how = f"{each.key} had a receipt and is paid; now no access, and the header: {said}"
                yield Violation(Law.RECEIPT_STAYS, how)

    # --- sessions ------------------------------------------------------------------------

    def _refunds(self) -> Iterator[Violation]:
        """Compare what the server wallet owes each payer with what it has sent."""
        owed: Counter[str] = Counter()
        undone: Counter[str] = Counter()
        counted: set[str] = set()
        for key, granted in self.granted.items():
            use, payer, deposit_base = self._deposit(key)
            session = granted.session
            if "sessionId" in session:
                left = int(str(session["deposited"])) - int(str(session["released"]))
                (owed if use else undone)[payer] += left
                if use and use.tx_hash in counted:
                    return  # a deposit that raced: two sessions for one, and no money for both
                counted.add(use.tx_hash if use else "")
            else:
                undone[payer] += deposit_base
        merchant = self.scene.world.merchant.lower()
        sent: Counter[str] = Counter()
        wallet_base = 0
        for sender, to, amount_base in self.ledger.transfers:
            if sender == merchant:
                sent[to] += amount_base
            wallet_base += amount_base * ((to == merchant) - (sender == merchant))
        for payer in owed | undone | sent:
            extra = sent[payer] - owed[payer]
            if 0 < extra <= undone[payer]:
                self.counts["refunded, then the deposit was undone"] += 1
            elif extra < 0 and undone and wallet_base < owed[payer]:
                self.counts["not refunded: the wallet paid for a deposit that was undone"] += 1
            elif extra:
                how = f"{payer} is owed {owed[payer]} base units and got {sent[payer]}"
                yield Violation(Law.REFUND_ARRIVES_ONCE, how)

    def _deposit(self, key: Key) -> tuple[Use | None, str, int]:
        """Return the standing use that paid for an id, if any, its payer and its deposit."""
        shown = [each for each in self.book.presented if each.key == key]
        price_base = shown[0].required.price_base if shown[0].resource == SESSIONS else 0
        for each in shown:
            use = self.ledger.uses.get(each.signed.nonce)
            if use and _pays(use, each):
                return use, "0x" + each.signed.authorization.from_.hex(), price_base
        return None, "0x" + shown[0].signed.authorization.from_.hex(), price_base

    def _debits(self) -> Iterator[Violation]:
        sessions = {
            (key[0], str(granted.session["sessionId"])): granted.session
            for key, granted in self.granted.items()
            if "sessionId" in granted.session
        }
        for visit in self.book.visits:
            view = sessions.get((visit.service, visit.session_id))
            if view is None:
                continue
            released = int(str(view["released"]))
            least, most = len(visit.served) * PRICE_BASE, len(visit.sent) * 2 * PRICE_BASE
            if not least <= released <= most:
                how = f"{visit.session_id}: released {released}, served {least}, asked {most}"
                yield Violation(Law.DEBITS_ARE_SERVED, how)


def _pays(use: Use, each: Presented) -> bool:
    """Tell whether a use moved exactly what was asked, from this payer to this merchant."""
    if use.canceled:
        return False
    wanted = each.required.requirements
    payer = "0x" + each.signed.authorization.from_.hex()
    moved = payer, wanted["payTo"].lower(), int(wanted["maxAmountRequired"])
    return moved in use.transfers


async def ask_everything(scene: Scene) -> dict[Key, Granted]:
    """Ask each service about each payment id: access, the header again, the record.

    A session that opens only now gets the time to end, and to be refunded.
    """
    found: dict[Key, Granted] = {}
    for each in scene.book.presented:
        if each.key not in found:
            found[each.key] = await _ask_about(scene, each)
    late = [each for each in scene.book.presented if _opened_late(found[each.key])]
    if late:
        await scene.world.clock.sleep(LATE_S)
    for each in late:
        payer = scene.at(each.signed.payer, each.service)
        granted = found[each.key]
        view = await payer.session(str(granted.session["sessionId"]))
        found[each.key] = replace(granted, session=view)
    return found


def _opened_late(granted: Granted) -> bool:
    return granted.access_after and not granted.access and bool(granted.session)


async def _ask_about(scene: Scene, each: Presented) -> Granted:
    service, payment_id = each.key
    payer = scene.at(each.signed.payer, service)
    before = await _access(scene, each, service)
    status = (await payer.payment(payment_id)).get("status")
    again = None
    if not _has_access(before):
        rivals = [other for other in scene.book.presented if other.key == each.key]
        for other in rivals:
            again = await payer.pay(other.required, other.signed.header)
            if again.status == 200:
                break
    after = before if _has_access(before) else await _access(scene, each, service)
    record = await payer.payment(payment_id)
    session: dict[str, object] = after.body if "sessionId" in after.body else {}
    if session:
        session = await payer.session(str(session["sessionId"]))
    return Granted(
        each.key,
        _has_access(before),
        _has_access(after),
        again,
        {"tx_hash": record.get("tx_hash"), "status": status},
        session,
    )


async def _access(scene: Scene, each: Presented, service: Service) -> Answer:
    payer, payment_id = scene.at(each.signed.payer, service), each.required.payment_id
    if each.resource == QUOTE:
        return await payer.ask(payment_id=payment_id)
    return await payer.ask_session("0.01", 60, payment_id=payment_id)


def _has_access(answer: Answer) -> bool:
    return answer.status in (200, 201)
