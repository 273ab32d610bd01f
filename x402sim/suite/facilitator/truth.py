"""Compares a facilitator's answers with the chain, in plays where the chain, its node or other
payments interfere.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from x402sim.chain.base import Call
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, PrivateKey, from_hex, sign
from x402sim.protocol.eip3009 import cancel_digest
from x402sim.protocol.permit2 import PERMIT2
from x402sim.suite import texts
from x402sim.suite.facilitator.case import Demand, gas, no_server_error, tokens
from x402sim.suite.facilitator.payment import Answer, Dialect, Draft
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import Money
from x402sim.suite.money import Transfer
from x402sim.suite.started import CLOCK
from x402sim.suite.verdict import Inconclusive, Violation
from x402sim.text.words import counted

LONG_S = 200.0
"""Seconds for a settlement without a receipt: the public facilitators wait up to 180 s."""
SENDS_S = 5.0
"""Seconds that a play waits for the relayer's transaction, before the play goes on without."""
LOOK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Payments, the answers to each request, and the state of the chain in the end.

    `early` is the state of the chain at the first answer, if a play looked then; `note` is a
    further observation.
    """

    pairs: tuple[tuple[Draft, Answer], ...]
    money: Money
    early: Money | None = None
    verified: Answer | None = None
    note: str = ""
    more: dict[str, int] = field(default_factory=dict)

    @property
    def all_answers(self) -> list[Answer]:
        """The answers."""
        return [answer for _, answer in self.pairs]

    @property
    def demand_on_settle(self) -> str:
        """The demand on settle after the answer of verify; empty without verify."""
        return self.verified.demand_on_settle if self.verified else ""

    @property
    def summary(self) -> str:
        """The answers, and the state of the chain."""
        hows = [f"settle: {answer.how}" for _, answer in self.pairs[:4]]
        more = [f"and {counted(len(self.pairs) - 4, 'answer')} more"] if len(self.pairs) > 4 else []
        return "; ".join([*hows, *more, self.money.summary])

    @property
    def drafts(self) -> list[Draft]:
        """The payments, each once."""
        found: list[Draft] = []
        for draft, _ in self.pairs:
            if all(draft.auth != each.auth for each in found):
                found.append(draft)
        return found

    def answers(self, draft: Draft) -> list[Answer]:
        """Return the answers to a payment."""
        return [answer for each, answer in self.pairs if each.auth == draft.auth]

    def moved(self, draft: Draft, money: Money | None = None) -> list[Transfer]:
        """Return the transfers of a payment."""
        return [each for each in (money or self.money).moved if is_of(each, draft)]


async def observe(play: Play, *pairs: tuple[Draft, Answer], early: Money | None = None) -> Observed:
    """Return the answers, and the present state of the chain."""
    money = await play.money()
    play.saw(money)
    return Observed(pairs=pairs, money=money, early=early)


def is_of(moved: Transfer, draft: Draft) -> bool:
    """Tell whether a transfer belongs to a payment."""
    auth = draft.auth
    return (moved.sender, moved.to, moved.amount_base) == (auth.from_, auth.to, auth.value)


ASK_AGAIN = (408, 409, 425, 429)
"""Statuses of repeatable requests, without a word on the payment."""


def is_final_no(answer: Answer) -> bool:
    """Tell whether an answer reports a failed payment: in the body, or by a 4xx."""
    if answer.is_pending:
        return False
    if answer.status // 100 == 4:
        return answer.status not in ASK_AGAIN
    if answer.status // 100 != 2:
        return False
    if answer.dialect is Dialect.CRONOS:
        return answer.fields.get("event") == "payment.failed"
    return answer.fields.get("success") is False


# --- demands ---------------------------------------------------------------------------------


def truthful(play: Play, observed: Observed) -> Violation | None:
    """Find an answer that is not true of the chain.

    After a success, the chain must have this payment's transfer, in the transaction that the answer
    names, and already in the `early` state, if given. After a failure, the chain must not have the
    transfer.
    """
    sent = {each.tx_hash for each in observed.money.sent}
    for draft in observed.drafts:
        moved, answers = observed.moved(draft), observed.answers(draft)
        hashes = {each.tx_hash for each in moved}
        for answer in answers:
            if not answer.succeeded:
                continue
            then = (
                observed.early
                if observed.early and answer is observed.pairs[0][1]
                else observed.money
            )
            if not moved or not observed.moved(draft, then):
                return Violation(
                    demand="success-is-on-chain",
                    actual=f"settle: {answer.how}; {then.summary}",
                    loss=tokens(
                        play.room, draft.auth.value, "served for nothing: nothing had moved"
                    ),
                )
            if answer.transaction not in hashes:
                return Violation(
                    expected=f"success by the hash of this transfer, {', '.join(sorted(hashes))}",
                    actual=f"settle: {answer.how}; {observed.money.summary}",
                    demand="its-hash",
                )
        is_told = any(each.succeeded or each.transaction in hashes for each in answers)
        if hashes & sent and not is_told and any(map(is_final_no, answers)):
            return Violation(
                demand="settled-is-no-failure",
                actual=observed.summary,
                loss=tokens(play.room, draft.auth.value, "paid, and told that it failed"),
            )
    return None


def success_is_this_transfer(title: str) -> Demand:
    """Return the demand that a success is this transfer, once, and a failure is no transfer."""
    return Demand(
        title=title,
        ground=texts.derived(
            texts.SUCCESS_FIELD,
            texts.TRANSACTION,
            texts.TRANSFER_IS_CORRECT,
            so="whether a settlement was successful is what the chain says of this transfer; one "
            "that has succeeded, or still can, has not failed, and has a hash",
        ),
        test=truthful,
    )


def names_the_hash(_: Play, observed: Observed) -> Violation | None:
    """Find a transaction that moved a payment, and whose hash no answer named."""
    sent = {each.tx_hash for each in observed.money.sent}
    for draft in observed.drafts:
        hashes = {each.tx_hash for each in observed.moved(draft)} & sent
        named = {each.transaction for each in observed.answers(draft)}
        if hashes and not hashes & named:
            return Violation(demand="names-what-it-sent", actual=observed.summary)
    return None


def hash_is_named(title: str) -> Demand:
    """Return the demand that a sent transaction is named."""
    return Demand(
        title=title,
        ground=texts.ours(
            texts.TRANSACTION,
            because="without the hash a server that asks again cannot tell it from a failure, and "
            "the payer signs another (x402-foundation/x402#1062, #3083)",
        ),
        test=names_the_hash,
        suffix="hash",
    )


def wastes_nothing(_: Play, observed: Observed) -> Violation | None:
    """Find more transactions of the relayer than payments, or a reverted one."""
    money = observed.money
    if money.reverted:
        return Violation(
            expected="no transaction of the relayer that reverts",
            actual=observed.summary,
            loss=gas(money.burnt_wei, "gas for what could not succeed")
            if money.burnt_wei
            else None,
            demand=observed.demand_on_settle or "no-reverts",
        )
    if len(money.sent) > len(observed.drafts):
        return Violation(demand="one-transaction", actual=observed.summary)
    return None


def wastes_no_gas(title: str, because: str) -> Demand:
    """Return the demand: no gas for a hopeless transaction, nor for a second one."""
    return Demand(
        title=title,
        ground=texts.ours(texts.SIMULATE, texts.SAFETY, because=because),
        test=wastes_nothing,
        suffix="gas",
    )


def sends_nothing(title: str, so: str) -> Demand:
    """Return the demand that settle sends no transaction for a visibly unpayable payment."""
    return Demand(
        title=title,
        ground=texts.derived(texts.EXECUTES, texts.SAFETY, so=so),
        test=wastes_nothing,
        suffix="gas",
    )


def everything_settles(play: Play, observed: Observed) -> Violation | None:
    """Find a payment with neither a success nor a pending answer with a hash."""
    bad = [
        (draft, answer)
        for draft, answer in observed.pairs
        if answer.status not in (429, 503)  # too busy is no verdict
        and not (answer.succeeded or (answer.is_pending and answer.transaction))
    ]
    if not bad:
        return None
    _, answer = bad[0]
    return Violation(
        expected=f"{len(observed.pairs)} good payments settle",
        actual=f"{len(bad)} of {len(observed.pairs)} do not, such as: {answer.how}; "
        f"{observed.money.summary}",
        demand="many-settle",
    )


def must_not_settle(play: Play, observed: Observed) -> Violation | None:
    """Find a success for a hopeless payment."""
    for draft, answer in observed.pairs:
        if answer.succeeded:
            return Violation(
                demand="refused-is-no-success",
                actual=observed.summary,
                loss=None
                if observed.moved(draft)
                else tokens(play.room, draft.auth.value, "served for nothing: nothing moved"),
                why="one payment buys twice" if observed.moved(draft) else "",
            )
    return None


def is_not_valid(_: Play, observed: Observed) -> Violation | None:
    """Find a verification that answered valid; in the dialect of Cronos any answer passes."""
    answer = observed.verified
    if answer is None or answer.dialect is Dialect.CRONOS or not answer.is_valid:
        return None
    return Violation(demand="refused-is-not-valid", actual=f"verify: {answer.how}")


def no_server_errors(_: Play, observed: Observed) -> Violation | None:
    """Find an answer that is missing, or a 5xx."""
    for answer in [*observed.all_answers, *([observed.verified] if observed.verified else [])]:
        if fault := no_server_error(answer):
            return fault
    return None


# --- the steps of plays ----------------------------------------------------------------------


async def until(condition: Callable[[], bool], most_s: float = SENDS_S) -> bool:
    """Wait for a condition; return whether it holds."""
    for _ in range(int(most_s / LOOK_S)):
        if condition():
            return True
        await CLOCK.sleep(LOOK_S)
    return condition()


async def until_sent(play: Play, *tasks: asyncio.Task[Answer], count: int = 1) -> bool:
    """Wait until the relayer has sent `count` transactions, or all tasks are done.

    Counts from the beginning of the play; returns whether the transactions were sent.
    """

    def is_sent() -> bool:
        return len(play.room.node.sent) - play.sent_before >= count

    await until(lambda: is_sent() or all(task.done() for task in tasks))
    return is_sent()


@asynccontextmanager
async def unmined(play: Play) -> AsyncIterator[None]:
    """Mine nothing within a `with` block; mine the waiting transactions afterwards."""
    controls = play.room.controls
    await controls.set_automine(False)
    try:
        yield
    finally:
        await play.room.tidy()


async def settled_once(play: Play, draft: Draft) -> Answer:
    """Settle a good payment; raises `Inconclusive` for a refusal."""
    answer = await play.settle(draft)
    if not answer.succeeded:
        raise Inconclusive(f"the first settlement failed: {answer.how}")
    return answer


async def verified_and_settled(play: Play, draft: Draft) -> Observed:
    """Verify and settle a payment, whatever verify says."""
    verified = await play.verify(draft)
    answer = await play.settle(draft)
    return replace(await observe(play, (draft, answer)), verified=verified)


async def settled_when_mined(play: Play, draft: Draft) -> Answer:
    """Settle a payment while mining is off, and mine the relayer's transaction."""
    task = asyncio.create_task(play.settle(draft))
    await until_sent(play, task)
    await play.room.controls.mine()
    return await task


async def valid_first(play: Play, draft: Draft) -> Answer:
    """Verify a payment; raises `Inconclusive` for an invalid one."""
    answer = await play.verify(draft)
    if not answer.is_valid:
        raise Inconclusive(f"the payment was not valid to begin with: {answer.how}")
    return answer


async def drained(play: Play, draft: Draft, sink: Address) -> None:
    """Let the payer send all of its tokens away."""
    room, payer, asset = play.room, draft.auth.from_, draft.network.asset
    await room.controls.set_native_balance(payer, 10**18)
    held = await room.chain.call(Call(payer, asset, abi.balance_of(payer)))
    await room.transact(payer, asset, abi.transfer(sink, int.from_bytes(held)))


async def used_by_another(play: Play, draft: Draft) -> None:
    """Let a stranger have the payment's transfer made: anybody may submit it."""
    await play.room.transact(play.room.owner.address_bytes, *draft.call)


async def cancelled(play: Play, draft: Draft) -> None:
    """Let the payer cancel the payment's nonce."""
    auth, network = draft.auth, draft.network
    if draft.permit:
        word, bit = divmod(draft.message.nonce, 256)
        data = abi.calldata(abi.INVALIDATE_NONCES, word, 1 << bit)
        await play.room.transact(auth.from_, PERMIT2, data)
        return
    key = PrivateKey(from_hex(draft.wallet.private_key, 32))
    signature = sign(cancel_digest(auth.from_, auth.nonce, network.domain), key)
    data = abi.cancel_authorization(auth.from_, auth.nonce, signature)
    await play.room.transact(play.room.owner.address_bytes, network.asset, data)
