"""With `payment-identifier` in the 402, the payer gets a lost answer again, and nobody else."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

from x402sim.payer.wallet import Wallet
from x402sim.protocol.x402 import PAYMENT_IDENTIFIER
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.money import Transfer
from x402sim.suite.server.case import case, demand
from x402sim.suite.server.double import REFUSED, SETTLE, VERIFY, on, refuses, waits
from x402sim.suite.server.payment import Payment, receipt_in
from x402sim.suite.server.play import PAUSE_S, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, NotApplicable, Violation
from x402sim.text.words import counted, often

ID = f"extensions.{PAYMENT_IDENTIFIER}.info.id"
_case = partial(case, absent={Dialect.V1: "extensions are of version 2"})
RETRYABLE = (202, 409, 423, 425, 429)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Two payments with one id, the answers, and the transfers of each payment.

    If both payments have one nonce, the transfers count for the first payment.
    """

    payments: tuple[Payment, Payment]
    first: Answer
    second: Answer
    moved: tuple[list[Transfer], list[Transfer]]
    settled: int = 0
    """The calls of settle with the first payment."""

    @property
    def summary(self) -> str:
        """The answers."""
        return f"first {self.first.how}; then {self.second.how}"


async def _draft(play: Play, named: str = "") -> Payment:
    """Return a payment with an id, a new one by default."""
    payment = await play.draft()
    required = play.required(play.answers[-1])
    offered = required.get("extensions")
    if not isinstance(offered, dict) or PAYMENT_IDENTIFIER not in offered:
        raise NotApplicable(f"its 402 does not offer {PAYMENT_IDENTIFIER}")
    return payment.with_value(ID, named or f"pay_{play.draw().hex()}")


def _id(payment: Payment) -> str:
    return str(payment.body["extensions"][PAYMENT_IDENTIFIER]["info"]["id"])


async def _named(
    play: Play, first: Payment, answer: Answer, second: Payment, again: Answer
) -> Named:
    moved = await play.moved(first)
    return Named(
        payments=(first, second),
        first=answer,
        second=again,
        moved=(moved, [each for each in await play.moved(second) if each not in moved]),
        settled=play.double.count(SETTLE, first.nonce),
    )


Change = Callable[[Play, Payment, Payment], Payment]


def _another(change: Change) -> Callable[[Play], Awaitable[Named]]:
    """Return the play of a purchase, and of another payload with its id."""

    async def play(it: Play) -> Named:
        payment = await _draft(it)
        first = await it.pay(payment)
        other = change(it, payment, await _draft(it, _id(payment)))
        return await _named(it, payment, first, other, await it.pay(other))

    return play


def _of_another_payer(play: Play, _: Payment, new: Payment) -> Payment:
    other: Wallet = play.room.world.wallets[1]
    return replace(new, wallet=other).signed(from_=other.address_bytes).with_value(ID, _id(new))


def _unsigned(_: Play, bought: Payment, __: Payment) -> Payment:
    """Return a used payment without the signature, as a stranger can send it."""
    return bought.with_value("payload.signature", "0x" + "00" * 65)


@demand(
    "The same payment with the same id gets the stored answer, though verify would refuse by now",
    texts.explicit(texts.SAME_ID, texts.BEFORE_VERIFYING),
)
def _is_kept(play: Play, observed: Named) -> Found:
    first, second = observed.first, observed.second
    moves = 0 if play.amount_told(first) == 0 else 1
    is_same = (first.status, first.body) == (second.status, second.body)
    if is_same and len(observed.moved[0]) == moves:
        return None
    return Violation(
        demand="id-gets-stored-answer",
        actual=observed.summary,
        loss=play.tokens(observed.payments[0].auth.value, "charged, and the answer is lost")
        if moves
        else None,
    )


@demand("The stored answer has PAYMENT-RESPONSE", texts.explicit(texts.STORED), suffix="receipt")
def _receipt_is_kept(play: Play, observed: Named) -> Found:
    if not observed.second.is_2xx or play.receipt(observed.first) == receipt_in(
        play.dialect, observed.second
    ):
        return None
    return Violation(demand="stored-answer-has-receipt", actual=observed.summary)


@demand(
    "Another payload with a known id is answered 409",
    texts.explicit(texts.SAME_ID_OTHER),
    suffix="409",
)
def _is_409(_: Play, observed: Named) -> Found:
    if observed.second.status == 409:
        return None
    return Violation(
        demand="other-payload-is-409",
        actual=observed.summary,
        why="one of two payments looks like the other",
    )


@demand(
    "Two payloads with the same id at once are not both served", texts.explicit(texts.SAME_ID_OTHER)
)
def _is_one(play: Play, observed: Named) -> Found:
    if not (observed.first.is_2xx and observed.second.is_2xx):
        return None
    return Violation(
        demand="other-payload-is-409",
        actual=f"both at once: {observed.summary}",
        loss=play.tokens(observed.payments[1].auth.value, "paid twice for one purchase")
        if observed.moved[1]
        else None,
        why="who repeats a purchase with its id, as a retry that signs anew does, pays twice",
    )


@demand(
    "Another payload with a known id is not served unpaid goods",
    texts.derived(
        texts.SAME_ID_OTHER,
        texts.LOOKUP,
        so="a lookup by the id alone is given to whoever has read the id",
    ),
)
def _buys_nothing(play: Play, observed: Named) -> Found:
    second = observed.second
    if not second.is_2xx or observed.moved[1] or play.amount_told(second) == 0:
        return None
    return Violation(
        demand="id-is-no-payment",
        actual=observed.summary,
        loss=play.tokens(observed.payments[0].auth.value, "served for nothing"),
    )


@demand(
    "Another payload with a known id, refused, is not charged",
    texts.derived(texts.SAME_ID_OTHER, texts.INTENT, so="a payment that is refused does not move"),
    suffix="charged",
)
def _is_not_charged(play: Play, observed: Named) -> Found:
    if observed.second.is_2xx or not observed.moved[1]:
        return None
    return Violation(
        demand="refused-payload-moves-nothing",
        actual=observed.summary,
        loss=play.tokens(observed.payments[1].auth.value, "charged and not served"),
    )


@demand(
    "A payment in progress, sent again, waits, or gets an error to try again",
    texts.explicit(texts.IN_PROGRESS),
)
def _is_processed_once(play: Play, observed: Named) -> Found:
    answer = observed.second
    is_right = answer.is_server_error or answer.status in RETRYABLE
    is_right = is_right or (answer.is_2xx and answer.body == observed.first.body)
    if is_right and observed.settled == 1:
        return None
    return Violation(
        demand="in-progress-waits",
        actual=f"{observed.summary}; settle was requested {often(observed.settled)}",
    )


@demand(
    "Where an id is required, a payment without an id is answered 400",
    texts.explicit(texts.ID_REQUIRED),
)
def _is_400(_: Play, observed: Named) -> Found:
    if observed.first.status == 400 and not observed.moved[0]:
        return None
    return Violation(
        demand="missing-id-is-400",
        actual=f"{observed.first.how}; {counted(len(observed.moved[0]), 'transfer')}",
    )


@_case("identifier/again", _is_kept, _receipt_is_kept)
async def _again(play: Play) -> Named:
    """Buy, and send the same payment again when the facilitator refuses the payment."""
    payment = await _draft(play)
    first = await play.pay(payment)
    no = {"isValid": False, "invalidReason": "invalid_exact_evm_payload_authorization_valid_before"}
    with play.double.twisted(on(VERIFY, refuses(no)), on(SETTLE, refuses(REFUSED))):
        second = await play.pay(payment)
    return await _named(play, payment, first, payment, second)


@_case("identifier/other-at-once", _is_one)
async def _two_at_once(play: Play) -> Named:
    """Send two payments with one id at once: verify is held, so that a late claim shows."""
    payment = await _draft(play)
    other, gate = await _draft(play, _id(payment)), asyncio.Event()
    with play.double.twisted(on(VERIFY, waits(gate))):
        asked = asyncio.gather(play.pay(payment), play.pay(other))
        await play.wait(PAUSE_S)
        gate.set()
        first, second = await asked
    return await _named(play, payment, first, other, second)


@_case("identifier/busy", _is_processed_once)
async def _busy(play: Play) -> Named:
    """Send a payment again during the settlement."""
    payment, gate = await _draft(play), asyncio.Event()
    with play.double.twisted(on(SETTLE, waits(gate))):
        asked = asyncio.create_task(play.pay(payment))
        if not await play.double.until(SETTLE, payment.nonce, play.patience_s):
            raise NotApplicable("it does not ask settle")
        again = asyncio.create_task(play.pay(payment))
        await asyncio.wait([again], timeout=2 * PAUSE_S)
        gate.set()
        first, second = await asked, await again
    return await _named(play, payment, first, payment, second)


@_case("identifier/required", _is_400)
async def _unnamed(play: Play) -> Named:
    payment = await _draft(play)
    required = play.required(play.answers[-1])
    if required["extensions"][PAYMENT_IDENTIFIER].get("info", {}).get("required") is not True:
        raise NotApplicable("it does not require an id")
    payment = payment.with_value(ID, None)
    answer = await play.pay(payment)
    return await _named(play, payment, answer, payment, answer)


ROWS = [
    *(
        _case(f"identifier/{slug}", _buys_nothing, _is_409, _is_not_charged)(_another(change))
        for slug, change in {
            "other": lambda _, __, new: new,
            "payer": _of_another_payer,
        }.items()
    ),
    _case("identifier/unsigned", _buys_nothing)(_another(_unsigned)),
]
