"""The law of money: one for every campaign, whatever it does to a service.

Real crashes (`tests/crash`), clients that hang up, random worlds (`tests/explore`) and hostile input
(`tests/hostile`) each gather evidence in their own way, and hand it in as plain facts: what the
ledger has, what a service answered. Where a campaign cannot know, it gives bounds, or does not ask.
Written from the ledger and the answers alone, apart from the service's code.

Amounts are base units, addresses lower-case hex with 0x, nonces hex without it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from x402sim.chain.base import Chain, Log, LogFilter
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, to_hex
from x402sim.text.words import printable_lines


class Law(Enum):
    """The invariants of a run; the value is one sentence."""

    PAID_IS_SERVED = "money that moved for an order gives access, or was refunded"
    FINAL_IS_FINAL = "a header that was refused for good is not charged afterwards"
    CHARGED_ONCE = "a service charges once for one order, whatever is presented for it"
    SERVED_ONCE = "a payment in one step is served once, and what its payer names stays open to it"
    ONE_NAME = "of two payments with one name, a service settles one"
    UNSOLD = "a method that an endpoint does not sell gets nothing"
    SERVED_AFTER_PAID = "nothing is served before the money for it has moved"
    SERVED_IS_PAID = "access is granted only while the money for it stands on the chain"
    ONLY_WHAT_WAS_BOUGHT = "a payment gives access to the resource that it was for, to no other"
    RECORD_NAMES_IT = "records and receipts name the transaction that paid"
    ONE_TRANSFER_PAYS_ONCE = "one transfer pays for one payment id, at one deployment"
    RECEIPT_STAYS = "who has a receipt has access whenever it asks, while its money stands"
    SESSION_IS_DEPOSIT = "a session has exactly the budget that was deposited"
    SESSION_SERVES = "a session that has budget and time is served"
    DEBITS_ARE_SERVED = "a session has released exactly the price of what it was served"
    REFUND_IS_THE_REST = "each session's payer got back, once, exactly what was not served"
    RESOLVED = "no payment is pending after its authorization has expired"
    ANSWERED = "every request is answered"
    NO_SERVER_ERROR = "a service answers no 5xx but the 502 and 503 that are documented"
    NO_EXCEPTION = "no task raises"
    TIME_PASSES = "time passes, and nothing waits for ever"
    MONEY_IS_SIGNED = "money leaves a payer only as it has signed"
    BALANCE_IS_THE_SUM = "an account has what its transfers leave it"


OF_THE_CHAIN = (Law.MONEY_IS_SIGNED, Law.BALANCE_IS_THE_SUM)
"""What the chain keeps: no defect of a service breaks it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that a run broke, and how."""

    law: Law
    how: str

    def __str__(self) -> str:
        return printable_lines(f"{self.law.value}: {self.how}")


# --- the ledger --------------------------------------------------------------------------

Moved = tuple[str, str, int]
"""From whom, to whom, how much."""
Place = tuple[str, str]
"""A server wallet, and a payer that it owes something."""
EVENTS = (abi.TRANSFER_EVENT, abi.AUTHORIZATION_USED, abi.AUTHORIZATION_CANCELED)
"""The events of the token from which a ledger is read."""


class Logged(NamedTuple):
    """What a ledger needs of a `Log`."""

    topics: tuple[bytes, ...]
    data: bytes
    tx_hash: bytes


class Transfer(NamedTuple):
    """Money that moved."""

    sender: str
    to: str
    amount: int
    tx_hash: str

    @property
    def moved(self) -> Moved:
        """The transfer without its transaction."""
        return self[:3]


@dataclass(frozen=True, slots=True)
class Use:
    """A transaction that used up an authorization."""

    tx_hash: str
    canceled: bool
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The chain as it stands: the uses of each authorization, by nonce, and every transfer."""

    uses: dict[str, list[Use]]
    transfers: list[Transfer]

    @classmethod
    def of(cls, logs: Iterable[Logged | Log]) -> "Ledger":
        """Return the ledger that these events tell."""
        moved, used = defaultdict[str, list[Transfer]](list), list[tuple[str, str, bool]]()
        for log in logs:
            topics, in_tx = log.topics, to_hex(log.tx_hash)
            if topics[0] == abi.TRANSFER_EVENT:
                sender, to = (to_hex(Address(topic[12:])) for topic in topics[1:3])
                moved[in_tx].append(Transfer(sender, to, int.from_bytes(log.data), in_tx))
            else:
                used.append((topics[2].hex(), in_tx, topics[0] == abi.AUTHORIZATION_CANCELED))
        uses = defaultdict[str, list[Use]](list)
        for nonce, in_tx, canceled in used:
            uses[nonce].append(Use(in_tx, canceled, tuple(moved.get(in_tx, ()))))
        return cls(dict(uses), [each for found in moved.values() for each in found])

    @classmethod
    async def read(cls, chain: Chain) -> "Ledger":
        """Read a chain's events, from its first block to the newest."""
        return cls.of(await chain.logs(LogFilter(0, 2**63, (), (EVENTS,))))

    def use(self, nonce: str) -> Use | None:
        """Return the last use of an authorization."""
        return self.uses.get(nonce, [None])[-1]

    def charges(self, nonce: str) -> list[Transfer]:
        """Return the transfers of all transactions that used an authorization."""
        return [each for use in self.uses.get(nonce, ()) for each in use.transfers]

    def by_hash(self, tx_hash: str | None) -> list[Transfer]:
        return [each for each in self.transfers if each.tx_hash == tx_hash]


# --- one law each ------------------------------------------------------------------------


def charged_as_signed(what: str, charges: list[Transfer], signed: Moved) -> Iterator[Violation]:
    """A header is charged once at most, and as its payer has signed it."""
    yield from charged_once(what, len(charges))
    for each in charges:
        if each.moved != signed:
            yield Violation(Law.MONEY_IS_SIGNED, f"{what} was charged otherwise: {each}")


def charged_once(what: str, times: int) -> Iterator[Violation]:
    if times > 1:
        yield Violation(Law.CHARGED_ONCE, f"{what} was charged {times} times")


def served_once(what: str, times: int, most: int = 1) -> Iterator[Violation]:
    if times > most:
        yield Violation(Law.SERVED_ONCE, f"{what} was served {times} times")


def refused_for_good(what: str, charges: Collection[Transfer]) -> Iterator[Violation]:
    if charges:
        yield Violation(Law.FINAL_IS_FINAL, f"{what} was refused as final, and charged")


def access_is_paid(what: str, paid: Collection[str]) -> Iterator[Violation]:
    if not paid:
        yield Violation(Law.SERVED_IS_PAID, f"{what} gives access, but no money stands")


def names_what_paid(what: str, named: object, paid: Collection[str]) -> Iterator[Violation]:
    if named not in paid:
        yield Violation(Law.RECORD_NAMES_IT, f"{what} names {named}, not {sorted(paid)}")


def receipt_stays(what: str, *, has_access: bool) -> Iterator[Violation]:
    if not has_access:
        yield Violation(Law.RECEIPT_STAYS, f"{what} had a receipt and is paid; now no access")


def is_resolved(what: str, status: object) -> Iterator[Violation]:
    """At the end no record is pending."""
    if status == "pending":
        yield Violation(Law.RESOLVED, f"{what} is pending for ever")


def session_is_right(
    what: str, view: dict[str, Any], deposit: int, served: tuple[int, int]
) -> Iterator[Violation]:
    """A session has what was deposited, and released what it `served`: at least, and at most."""
    has, released, rest = (int(view[name]) for name in ("deposited", "released", "remaining"))
    if has != deposit:
        yield Violation(Law.SESSION_IS_DEPOSIT, f"{what}: {deposit} were deposited, it says {view}")
    least, most = served
    if not least <= released <= most or released + rest != has:
        how = f"{what} has {rest}, released {released}, and served {least} to {most}"
        yield Violation(Law.DEBITS_ARE_SERVED, how)


def refunds_are_the_rest(
    place: Place, owed: Counter[int], sent: Counter[int], *, is_over: bool = True
) -> Iterator[Violation]:
    """A wallet has sent each payer what it owes; until the end some of it may be missing."""
    if sent - owed or (is_over and owed - sent):
        how = f"{place[1]} is owed {_amounts(owed)}, and got {_amounts(sent)}"
        yield Violation(Law.REFUND_IS_THE_REST, how)


def money_is_signed(
    transfers: Iterable[Transfer], payers: Collection[str], signed: Collection[str]
) -> Iterator[Violation]:
    """What leaves a payer is in a transaction that used an authorization of its own."""
    for each in transfers:
        if each.sender in payers and each.tx_hash not in signed:
            yield Violation(Law.MONEY_IS_SIGNED, f"a transfer that nobody signed: {each}")


def balance_is_the_sum(
    account: str, *, before: int, now: int, moves: Iterable[Transfer]
) -> Iterator[Violation]:
    """An account has what it had, less what it sent, plus what it got."""
    wanted = before
    for sender, to, amount, _ in moves:
        wanted += amount * ((to == account) - (sender == account))
    if now != wanted:
        how = f"{account} has {now}, its transfers leave {wanted}"
        yield Violation(Law.BALANCE_IS_THE_SUM, how)


def _amounts(counted: Counter[int]) -> str:
    return ", ".join(map(str, counted.elements())) or "nothing"
