"""The server's record of a payment: spellings, payers, refusals and requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.money import Transfer
from x402sim.suite.server.case import ONE_PATH, bought_repeated, case, demand, is_blamed
from x402sim.suite.server.double import SETTLE, VERIFY
from x402sim.suite.server.observed import Uses
from x402sim.suite.server.payment import Payment
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, Violation
from x402sim.text.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """Payments, their answers and their transfers."""

    payments: Sequence[Payment]
    answers: Sequence[Answer]
    moved: Sequence[Transfer]

    @property
    def summary(self) -> str:
        """The answers and the transfers."""
        hows = "; ".join(f"{n}: {each.how}" for n, each in enumerate(self.answers, 1))
        return f"{hows}; {counted(len(self.moved), 'transfer')}"


async def _sent(play: Play, payments: Sequence[Payment]) -> Several:
    """Send payments, one after the other."""
    answers = [await play.pay(each) for each in payments]
    return Several(payments=payments, answers=answers, moved=await play.moved())


def _reversed(value: Any) -> Any:
    """Return a JSON value with the keys of every object in the opposite order."""
    if not isinstance(value, dict):
        return value
    return {name: _reversed(value[name]) for name in reversed(value)}


@demand(
    "After two payments at once, each answer names the right settlement",
    texts.explicit(texts.RESPONSE, texts.TRANSACTION),
)
def _each_its_own(play: Play, observed: Several) -> Found:
    for payment, answer in zip(observed.payments, observed.answers, strict=True):
        mine = {each.tx_hash for each in observed.moved if each.nonce == payment.nonce.lower()}
        named = str(play.receipt(answer).get("transaction")).lower()
        if play.amount_told(answer) == 0 and named == "" and not mine:
            continue
        if answer.is_2xx and named not in mine:
            return Violation(
                demand="receipt-of-own-transaction",
                actual=f"{play.dialect.response_place}: {observed.summary}",
            )
    return None


@demand(
    "Another payer's payment with the same nonce is served if the money moves",
    texts.derived(
        texts.AUTHORIZER,
        texts.SUCCESS,
        so="of two payers, the same nonce is in two payments, and the transfer of one "
        "settles nothing of the other",
    ),
)
def _second_is_its_own(play: Play, observed: Several) -> Found:
    last, value = observed.answers[-1], observed.payments[1].auth.value
    if last.is_sale and play.amount_told(last) == 0 and not observed.moved:
        return None
    if last.is_sale == bool(observed.moved) or (observed.moved and play.is_honest(last)):
        return None
    return Violation(
        demand="nonce-is-its-payers",
        actual=f"the second payer: {observed.summary}",
        loss=play.tokens(
            value, "served on the transfer of another" if last.is_sale else "charged and not served"
        ),
    )


def _last_is_served(play: Play, observed: Several) -> Found:
    if observed.answers[-1].is_sale:
        return None
    return Violation(demand="good-after-refused", actual=observed.summary)


@demand(
    "A used payment without the signature gets nothing",
    texts.derived(
        texts.NO_VALID_PAYMENT,
        texts.PARAMETERS,
        so="everybody can read a settled authorization on the chain; what is sent "
        "again with another signature is no valid payment",
    ),
)
def _last_is_refused(play: Play, observed: Several) -> Found:
    if not observed.answers[-1].is_sale:
        return None
    return Violation(
        demand="signed-by-its-payer",
        actual=observed.summary,
        loss=play.tokens(
            observed.payments[0].auth.value
            if (told := play.amount_told(observed.answers[-1])) is None
            else told,
            "served to who has paid nothing",
        ),
    )


@demand(
    "An endless window: the answer is no 5xx",
    texts.derived(
        texts.STATUS_INVALID,
        texts.STATUS_SERVER,
        so="there is a status for a payment that is not taken, and a server's error is another",
    ),
)
def _no_error(play: Play, observed: Several) -> Found:
    answer = observed.answers[0]
    if answer.status and not answer.is_server_error:
        return None
    if is_blamed(answer, play.double.calls[-1:]):
        return None
    return Violation(demand="endless-window-is-answered", actual=answer.how)


@case(
    "many/respelled",
    bought_repeated(
        "What a payment in five spellings at once buys, if the facilitator says success each time"
    ),
)
async def _respelled(play: Play) -> Uses:
    """Send a payment in several spellings at once, to a facilitator that always says success."""
    payment = await play.draft()
    nonce, signature = payment.nonce, payment.body["payload"]["signature"]
    ways = [
        payment,
        payment.with_value("payload.authorization.nonce", "0x" + nonce[2:].upper()),
        payment.with_value("payload.signature", "0x" + signature[2:].upper()),
        payment.with_value("note", "again"),
        replace(payment, body=_reversed(payment.body)),
    ]
    answers = await play.held(VERIFY, [play.pay(each) for each in ways])
    return await play.distinguished(payment, answers)


@case(
    "many/elsewhere-at-once",
    bought_repeated(
        "What a payment for four requests at once buys, if the facilitator says success each time"
    ),
    absent={Dialect.MCP: ONE_PATH},
)
async def _for_other_requests(play: Play) -> Uses:
    """Send a payment for several requests at once, to a facilitator that always says success."""
    payment, item = await play.draft(), play.item
    begin = "&" if "?" in item.target else "?"
    others = [replace(item, target=f"{item.target}{begin}x402sim={n}") for n in range(1, 4)]
    answers = await play.held(VERIFY, [play.pay(payment, each) for each in (item, *others)])
    return await play.distinguished(payment, answers)


@case("many/receipts", _each_its_own)
async def _two_receipts(play: Play) -> Several:
    """Buy twice at once: both settlements are under way together."""
    payments = [await play.draft(), await play.draft()]
    answers = await play.held(SETTLE, [play.pay(each) for each in payments])
    return Several(payments=payments, answers=answers, moved=await play.moved())


@case(
    "many/same-nonce",
    _second_is_its_own,
    demand(
        "Another payer's payment with the same nonce is served",
        texts.ours(
            texts.AUTHORIZER,
            because="who has seen a nonce that waits can block its payment; as nonces are "
            "random, a server that keeps them alone is right in every other case",
        ),
        suffix="served",
    )(_last_is_served),
)
async def _same_nonce(play: Play) -> Several:
    """Buy, and let another payer buy with a payment of the same nonce."""
    payment, its = await play.draft(), await play.draft()
    other = replace(its, wallet=play.room.world.wallets[1])
    own = other.signed(from_=other.wallet.address_bytes, nonce=payment.auth.nonce)
    answers = [await play.pay(payment)]
    second = await play.sent_again(own, [await play.pay(own)])
    return Several(
        payments=[payment, own],
        answers=[*answers, *second.answers],
        moved=[each for each in second.moved if each.sender == other.wallet.address_bytes],
    )


@case("many/unsigned", _last_is_refused)
async def _unsigned(play: Play) -> Several:
    """Buy, and send the same authorization with a signature of somebody else."""
    payment = await play.draft()
    other = replace(payment, wallet=play.room.world.wallets[1]).signed()
    false = payment.with_value("payload.signature", other.body["payload"]["signature"])
    return await _sent(play, [payment, false])


@case(
    "many/refused-before",
    demand(
        "A payment is good after a refused payment with the same nonce",
        texts.ours(
            texts.SUCCESS,
            because="what was refused has used nothing; else a false one of somebody who "
            "has seen its nonce ends it",
        ),
    )(_last_is_served),
)
async def _refused_before(play: Play) -> Several:
    """Send a payment changed after signing, and then the good payment."""
    payment = await play.draft()
    false = payment.with_value("payload.authorization.value", "1")
    return await _sent(play, [false, payment])


@case("payment/endless", _no_error)
async def _endless(play: Play) -> Several:
    """Send a payment whose window never ends, which the token allows."""
    return await _sent(play, [(await play.draft()).signed(valid_before=2**256 - 1)])
