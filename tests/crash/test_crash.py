"""Worlds whose process is killed under load and started again, and audited each time.

A cycle is load, a kill or several, a restart, an audit: briefly every day, and eight cycles of each
command when thorough; `python -m tests.campaign` runs a hundred of each.
"""

import random
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from tests.campaign import at_length, seed
from tests.crash.deployment import (
    PAYERS,
    Command,
    Deployment,
    Phase,
    deployed,
    is_written,
    kill_under_load,
    wait_for,
)
from tests.money import (
    Law,
    Place,
    Transfer,
    Violation,
    access_is_paid,
    balance_is_the_sum,
    charged_as_signed,
    charged_once,
    is_resolved,
    money_is_signed,
    names_what_paid,
    receipt_stays,
    refunds_are_the_rest,
    refused_for_good,
    session_is_right,
)
from tests.serve.driver import ORDER, PAY, PRICE, QUOTE, SESSIONS, header
from x402sim import Wallet
from x402sim.payer.core import proofs, settlement
from x402sim.spec.decisions import Decisions

pytestmark = pytest.mark.clause(
    "3/pending-resolved", "3/refund-once", "4.1/store-settled", "5/nonce-once"
)


def test_a_crash() -> None:
    play(Command.SERVE, cycles=1, seed=1)


@pytest.mark.thorough
@pytest.mark.timeout(at_length(1200, 7200))
@pytest.mark.parametrize("command", Command, ids=lambda command: command.name.lower())
def test_many_crashes(command: Command) -> None:
    cycles = at_length(8, 100)
    did = play(command, cycles=cycles, seed=seed(2))
    assert all(did[f"killed {phase.value}"] for phase in UNDER_LOAD)
    often = ("refunds", "session requests served", "headers sent again")
    assert min(did[name] for name in (*often, "payments without a first answer")) > cycles / 4


def play(command: Command, *, cycles: int, seed: int) -> Counter[str]:
    """Run a campaign that finds nothing; each of its cycles killed a process that was at work."""
    did: Counter[str] = Counter()
    violations: list[str] = []
    while (done := did["cycles"]) < cycles:
        luck = random.Random(f"{seed} {command.value} {done}")
        with tempfile.TemporaryDirectory(prefix="x402sim-crash-") as folder:
            world = min(CYCLES_OF_A_WORLD, cycles - done)
            violations += _run_world(command, Path(folder), world, luck, did)
    print(command.value, *(f"{count:>8,}  {name}" for name, count in sorted(did.items())), sep="\n")
    assert violations == []
    assert did["cycles"] == cycles
    assert sum(count for name, count in did.items() if name.startswith("killed")) >= cycles
    assert did[PAID] >= did["receipts answered"] >= 8 * cycles
    return did


# --- the judge ------------------------------------------------------------------------------
# What the law of money says of what was attempted between crashes, where the payers know little.
#
# A charge may have no answer yet: then its header is still good, or its record is pending and the
# service resolves it by itself. What was served lies between what was answered and what was asked.

Resource = Literal["quote", "deposit"]


@dataclass(slots=True)
class Attempt:
    """One payment header for one payment id; amounts are base units, addresses lower-case."""

    payer: str
    pay_to: str
    amount: int
    nonce: str
    payment_id: str
    resource: Resource
    body: dict[str, Any]
    """The body of POST /api/pay."""
    session_body: dict[str, Any] = field(default_factory=dict)
    """The body of POST /api/sessions/create, of a deposit."""
    receipt: str | None = None
    """The transaction hash of the first receipt that was answered."""
    is_final: bool = False
    """Whether a refusal said that this header was not charged and never will be."""
    sent: int = 0
    spent: int = 0
    """Requests that the session of this deposit was served."""
    unanswered: int = 0
    """Requests with that session whose answer was lost."""
    released: int = 0
    """The most that the service ever said to have released, in base units."""
    is_active: bool = True
    """Whether the session may still pay, as far as the payer knows."""

    # what the newest audit has seen
    charges: list[Transfer] = field(default_factory=list)
    """The transfers on the ledger that used this authorization."""
    has_access: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    """The answer of GET /api/payments/{id}; empty if there is no record."""
    is_good: bool = False
    """Whether the header, sent again, was answered with a receipt or may be sent once more."""
    view: dict[str, Any] = field(default_factory=dict)
    """The session of a paid deposit, as the service shows it."""
    refund: list[Transfer] = field(default_factory=list)
    """The transfers of the transaction that the session names as its refund."""

    @property
    def is_open(self) -> bool:
        return self.receipt is None and not self.is_final

    @property
    def is_left_alone(self) -> bool:
        """Whether its payer never sends it twice: the service must find out by itself."""
        return self.sent > 0 and int(self.nonce, 16) % 2 == 0


@dataclass(slots=True)
class Memory:
    """What the payer of one account remembers."""

    attempts: list[Attempt] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """Answers that break a rule by themselves."""
    resends: int = 0


def judge_payment(attempt: Attempt, *, is_over: bool) -> Iterator[Violation]:
    """Judge one header; at the end (`is_over`) nothing may be left undecided."""
    what, record = f"payment {attempt.payment_id[:14]} nonce {attempt.nonce[:10]}", attempt.record
    signed = attempt.payer, attempt.pay_to, attempt.amount
    yield from charged_as_signed(what, attempt.charges, signed)
    if attempt.charges and not attempt.has_access:
        is_open = attempt.is_good
        if attempt.is_left_alone:
            is_open = record.get("status") == "pending"
        if is_over or not is_open:
            yield Violation(Law.PAID_IS_SERVED, f"{what} paid: no access, its record is {record}")
    if attempt.receipt:
        paid = {charge.tx_hash for charge in attempt.charges}
        yield from receipt_stays(what, has_access=attempt.has_access)
        yield from names_what_paid(f"the receipt of {what}", attempt.receipt, paid)
        recorded = record.get("tx_hash") if record.get("status") == "settled" else None
        yield from names_what_paid(f"the record of {what}", recorded, {attempt.receipt})
    if attempt.is_final:
        yield from refused_for_good(what, attempt.charges)
    if is_over:
        yield from is_resolved(what, record.get("status"))


def judge_payment_id(seen: list[Attempt]) -> Iterator[Violation]:
    what = f"payment id {seen[0].payment_id[:14]}"
    paid = [charge.tx_hash for each in seen for charge in each.charges]
    yield from charged_once(what, sum(bool(each.charges) for each in seen))
    if seen[0].has_access:
        yield from access_is_paid(what, paid)


def judge_session(deposit: Attempt, *, price: int, is_over: bool) -> Iterator[Violation]:
    """Judge one session; at the end every session that has ended is refunded."""
    view = deposit.view
    what, rest = f"session {view['sessionId'][:16]}", int(view["remaining"])
    least = max(deposit.spent * price, deposit.released)
    most = (deposit.spent + deposit.unanswered) * price
    yield from session_is_right(what, view, deposit.amount, (least, most))
    refunds = [(each.to, each.amount) for each in deposit.refund]
    wrong = ""
    match view["status"]:
        case "refunded" if refunds != [(deposit.payer, rest)]:
            wrong = f"says refunded, its refund is {refunds}, the rest is {rest}"
        case "expired" if is_over and rest:
            wrong = f"still owes {rest} at the end"
        case "active" if is_over and deposit.session_body["duration"] < 60:
            wrong = "has not ended at the end"
    if wrong:
        yield Violation(Law.REFUND_IS_THE_REST, f"{what} {wrong}")


def judge_refunds(
    wallet: str, sessions: list[Attempt], paid_back: list[Transfer], *, is_over: bool
) -> Iterator[Violation]:
    """Judge all transfers out of the server wallet: each is the refund of one ended session."""
    owed, sent = (defaultdict[Place, Counter[int]](Counter) for _ in range(2))
    for seen in sessions:
        if seen.view["status"] != "active" and (rest := int(seen.view["remaining"])):
            owed[wallet, seen.payer][rest] += 1
    for each in paid_back:
        sent[wallet, each.to][each.amount] += 1
    for place in owed.keys() | sent.keys():
        yield from refunds_are_the_rest(place, owed[place], sent[place], is_over=is_over)


# --- what the payers do -------------------------------------------------------------------
# They buy, send again, open sessions and spend them. The choices are seeded. A broken connection ends
# a payer's turn: the service was killed.

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
            self._expect(answer, {409}, "a header that has paid, for another payment id")

    def _pay_and_use(self, attempt: Attempt, status: int, what: str) -> None:
        if send(self._http, attempt, self._memory):
            self._expect(access(self._http, attempt), {status}, what)

    def _one_of(self, resource: str | None, wanted: Callable[[Attempt], object]) -> Attempt | None:
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
    proof = proofs(attempt.payment_id)
    if attempt.resource == "deposit":
        return http.post(SESSIONS, json=attempt.session_body, headers=proof)
    return http.post(QUOTE, json=ORDER, headers=proof)


# --- the audit ----------------------------------------------------------------------------
# It looks at everything after a restart, through public HTTP. The order matters, as background work
# goes on meanwhile: the ledger is read before and after the service is asked. A refund must belong to a
# session that was seen later; access must have been paid by a transfer that is seen later.

RESENDS = 20
PAUSE_S = 0.25
PAID = "payments on the ledger"
CREATED = Decisions().session_created_status


def audit(
    deployment: Deployment, memories: list[Memory], confirmed: set[str], *, is_over: bool
) -> list[str]:
    """Audit the ledger and the service's answers against the payers' memory; return what is wrong.

    `confirmed` keeps the receipts that the explorer has confirmed. At the end (`is_over`)
    nothing may be open any more.
    """
    before = deployment.ledger()
    attempts = look(deployment, memories)
    after = deployment.ledger()
    for attempt in attempts:
        attempt.charges = after.charges(attempt.nonce)
        attempt.is_good = False
    if not is_over:
        _send_what_was_charged(deployment, memories)
    sessions, last = [each for each in attempts if each.view], deployment.ledger()
    for each in sessions:
        each.refund = last.by_hash(each.view.get("refundTxHash"))
    refunds = [each for each in before.transfers if each.sender == deployment.wallet]
    payers = {each.payer for each in attempts}
    signed = {charge.tx_hash for each in attempts for charge in each.charges}
    laws = [
        *_judged(attempts, sessions, is_over=is_over),
        *judge_refunds(deployment.wallet, sessions, refunds, is_over=is_over),
        *money_is_signed(before.transfers, payers, signed),
        *_balances(deployment, payers),
    ]
    wrong = [*map(str, laws), *_unconfirmed(deployment, attempts, confirmed)]
    for party in (deployment, *memories):
        wrong += party.complaints
        party.complaints.clear()
    return wrong


def _counted(attempts: list[Attempt]) -> Counter[str]:
    at_once = sum(each.receipt is not None and each.sent == 1 for each in attempts)
    charges = sum(bool(each.charges) for each in attempts)
    return Counter(
        {
            PAID: charges,
            "receipts answered": sum(each.receipt is not None for each in attempts),
            "payments without a first answer": charges - at_once,
            "session requests served": sum(each.spent for each in attempts),
            "refunds": sum(bool(each.refund) for each in attempts),
        }
    )


def look(deployment: Deployment, memories: list[Memory]) -> list[Attempt]:
    """Ask the service about each header that was signed; return them all."""
    for memory in memories:
        for attempt in memory.attempts:
            _ask(deployment, attempt, memory)
    return _attempts(memories)


def _send_what_was_charged(deployment: Deployment, memories: list[Memory]) -> None:
    """Ask again about what was charged and gives no access; first send its header again."""
    for memory in memories:
        for attempt in memory.attempts:
            if attempt.charges and not attempt.has_access:
                if not attempt.is_left_alone:
                    attempt.is_good = _send_until_decided(deployment, attempt, memory)
                _ask(deployment, attempt, memory)


def _is_owed(deposit: Attempt) -> bool:
    match deposit.view:
        case {"status": "active"}:
            return bool(deposit.session_body["duration"] < 60)
        case {"status": "expired", "remaining": rest}:
            return bool(int(rest))
    return False


def _ask(deployment: Deployment, attempt: Attempt, memory: Memory) -> None:
    """Ask for the record, then for what was paid for.

    A pending payment may be settled between the two: whoever's record is settled has access after.
    """
    http = deployment.service
    found = http.get(f"/api/payments/{attempt.payment_id}")
    expect(found, {200, 404}, "a payment record", memory)
    attempt.record = found.json() if found.status_code == 200 else {}
    answer = access(http, attempt)
    expect(answer, {200, CREATED, 402}, "an audited payment id", memory)
    attempt.view = answer.json() if answer.status_code == CREATED else {}
    attempt.has_access = answer.status_code in (200, CREATED)


def _send_until_decided(deployment: Deployment, attempt: Attempt, memory: Memory) -> bool:
    """Send a charged header until there is access; tell whether it is never refused for good."""
    for _ in range(RESENDS):
        memory.resends += 1
        if send(deployment.service, attempt, memory):
            return True
        if access(deployment.service, attempt).status_code in (200, CREATED):
            return True
        if attempt.is_final:
            return False
        time.sleep(PAUSE_S)
    return True


def _judged(attempts: list[Attempt], sessions: list[Attempt], *, is_over: bool) -> list[Violation]:
    by_id: dict[str, list[Attempt]] = defaultdict(list)
    for each in attempts:
        by_id[each.payment_id].append(each)
    wrong = [w for each in attempts for w in judge_payment(each, is_over=is_over)]
    wrong += [w for each in by_id.values() for w in judge_payment_id(each)]
    for each in sessions:
        wrong += judge_session(each, price=PRICE, is_over=is_over)
        each.released = max(each.released, int(each.view["released"]))
    return wrong


def _unconfirmed(deployment: Deployment, attempts: list[Attempt], confirmed: set[str]) -> list[str]:
    wrong = []
    for tx_hash in {each.receipt for each in attempts} - confirmed - {None}:
        if deployment.explorer_confirms(tx_hash):
            confirmed.add(tx_hash)
        else:
            wrong.append(f"the explorer does not confirm the receipt {tx_hash}")
    return wrong


def _balances(deployment: Deployment, payers: set[str]) -> list[Violation]:
    """Compare the payers' balances with the transfers, at a moment when none is under way."""
    began = {each["address"].lower(): int(each["balance"]) for each in deployment.began}
    for _ in range(RESENDS):
        before = deployment.ledger()
        now = {payer: deployment.world.balance(payer) for payer in payers}
        if deployment.ledger() == before:
            return [
                wrong
                for payer in payers
                for wrong in balance_is_the_sum(
                    payer, before=began[payer], now=now[payer], moves=before.transfers
                )
            ]
    raise AssertionError("the ledger never came to rest")


# --- the campaign -------------------------------------------------------------------------

UNDER_LOAD = (Phase.LOAD, Phase.FILE, Phase.CHAIN, Phase.CHAIN, Phase.MEMPOOL)
"""How a cycle ends; what stands twice is twice as likely."""


def kill_in_start(deployment: Deployment, phase: Phase, luck: random.Random) -> None:
    deployment.spawn()
    match phase:
        case Phase.FIRST_FILE | Phase.FIRST_CHAIN:  # as one of the files appears
            is_own = phase is Phase.FIRST_FILE
            awaited = deployment.file if is_own else deployment.chain_file
            wait_for(awaited.exists, f"{awaited.name} appears")
        case Phase.START:  # mostly when the files are being opened
            share = luck.choice([luck.uniform(0, 1), luck.uniform(0.7, 1.05)])
            time.sleep(share * deployment.start_s)
        case Phase.AGAIN:
            deployment.await_ready()
            time.sleep(luck.uniform(0, 0.03))
        case _:  # at one of the first writes to the chain: pending payments and refunds
            for _ in range(luck.randint(1, 12)):
                if not is_written(deployment.chain_file, within_s=1.5 * deployment.start_s):
                    break
    deployment.kill()


CYCLES_OF_A_WORLD = 10
FAULTS: tuple[dict[str, Any], ...] = (
    {"does": "lose answer", "times": 2},
    {"does": "delay answer", "seconds": 0.1, "times": 4},
)


IN_A_START = (Phase.START, Phase.AGAIN, Phase.RESUMED)
FIRST = {
    Command.SERVE: (Phase.FIRST_FILE, Phase.FIRST_CHAIN),
    Command.SERVICE: (Phase.FIRST_FILE,),
}
"""The moments of a first start at which a command can be killed."""


def _run_world(
    command: Command, folder: Path, cycles: int, luck: random.Random, did: Counter[str]
) -> list[str]:
    """Run the cycles of one world, let everything in it come to its end, and return what is wrong."""
    memories = [Memory() for _ in range(PAYERS)]
    confirmed, wrong = set[str](), dict[str, None]()
    with deployed(command, folder) as deployment:
        for phase in FIRST[command]:
            if luck.random() < 0.7:
                did[f"killed {phase.value}"] += 1
                kill_in_start(deployment, phase, luck)
        deployment.spawn()
        deployment.await_ready()
        paid = 0
        for _ in range(cycles):
            did["cycles"] += 1
            _load_and_kill(deployment, memories, luck, did)
            _restart(deployment, luck, did)
            found = audit(deployment, memories, confirmed, is_over=False)
            wrong |= dict.fromkeys(f"cycle {did['cycles']}: {each}" for each in found)
            before, paid = paid, _counted(_attempts(memories))[PAID]
            assert paid > before, f"cycle {did['cycles']} paid nothing"
        _come_to_an_end(deployment, memories, did)
        wrong |= dict.fromkeys(audit(deployment, memories, confirmed, is_over=True))
    did += _counted(_attempts(memories))
    did["headers sent again"] += sum(memory.resends for memory in memories)
    return list(wrong)


def _attempts(memories: list[Memory]) -> list[Attempt]:
    return [each for memory in memories for each in memory.attempts]


def _load_and_kill(
    deployment: Deployment, memories: list[Memory], luck: random.Random, did: Counter[str]
) -> None:
    """Let the payers work until there are some new receipts, then kill."""
    phase, enough = luck.choice(UNDER_LOAD), _receipts(memories) + luck.randint(8, 40)
    if luck.random() < 0.4:
        fault = luck.choice(FAULTS)
        deployment.world.sim("faults", victim="facilitator", path="/settle", **fault)
    problems: list[BaseException] = []
    acts: list[Callable[[], object]] = [
        Payer(deployment, number, memory, random.Random(luck.random())).act
        for number, memory in enumerate(memories)
    ]
    if deployment.command is Command.SERVE and luck.random() < 0.4:
        acts.append(lambda: deployment.world.sim("indexer/run"))
    threads = [threading.Thread(target=_act_until_killed, args=(act, problems)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: _receipts(memories) >= enough or problems, f"{enough} receipts")
        did[f"killed {phase.value}"] += 1
        kill_under_load(deployment, phase, luck)
    finally:
        if deployment.running is not None:
            deployment.kill()
        for thread in threads:
            thread.join()
    if problems:
        raise problems[0]


def _act_until_killed(act: Callable[[], object], problems: list[BaseException]) -> None:
    try:
        while True:
            act()
    except httpx.TransportError:
        return
    except BaseException as problem:  # noqa: BLE001 - raised in the main thread
        problems.append(problem)


def _receipts(memories: list[Memory]) -> int:
    return sum(each.receipt is not None for each in _attempts(memories))


def _restart(deployment: Deployment, luck: random.Random, did: Counter[str]) -> None:
    """Start it again; some starts are killed, once or twice in a row."""
    mines_first = luck.random() < 0.5
    if deployment.command is Command.SERVICE:
        deployment.world.sim("faults/clear")
        if mines_first:
            deployment.world.sim("mining", automine=True)
    while luck.random() < 0.35:
        phase = luck.choice(IN_A_START)
        did[f"killed {phase.value}"] += 1
        kill_in_start(deployment, phase, luck)
    deployment.spawn()
    deployment.await_ready()
    if deployment.command is Command.SERVICE:
        deployment.world.sim("mining", automine=True)


def _come_to_an_end(deployment: Deployment, memories: list[Memory], did: Counter[str]) -> None:
    """Let sessions expire and be refunded, then let every open header's window pass."""
    deployment.world.sim("faults/clear")
    time.sleep(2.1)  # the longest of the short sessions
    _bring_to_rest(deployment, memories, did, _is_owed)
    is_whole = deployment.command is Command.SERVE
    deployment.world.sim("clock/advance", seconds=4000 if is_whole else 400)
    _bring_to_rest(
        deployment,
        memories,
        did,
        lambda each: _is_owed(each) or each.record.get("status") == "pending",
    )


def _bring_to_rest(
    deployment: Deployment,
    memories: list[Memory],
    did: Counter[str],
    is_open: Callable[[Attempt], bool],
) -> None:
    """Run the background work, which runs at once when a service starts, until nothing is open."""
    if deployment.command is Command.SERVICE:
        did[f"killed {Phase.IDLE.value}"] += 1
        deployment.kill()
        deployment.spawn()
        deployment.await_ready()
    else:
        deployment.world.sim("clock/advance", seconds=0)
    wait_for(lambda: not any(map(is_open, look(deployment, memories))), "it comes to rest", 0.1)


# --- the judge notices what a crash could do wrong ------------------------------------------
# That it accuses nobody is seen by the campaign itself, which ends without a violation.

CHARGE = Transfer("0xpayer", "0xmerchant", PRICE, "0xpaid")
BACK = Transfer("0xwallet", "0xpayer", 20_000, "0xback")


def payment(**known: object) -> Attempt:
    """A payment that was answered, and is as it should be."""
    return Attempt(
        **{
            "payer": "0xpayer", "pay_to": "0xmerchant", "amount": PRICE, "nonce": "0x01",
            "payment_id": "pay_1", "resource": "quote", "body": {}, "receipt": "0xpaid",
            "charges": [CHARGE], "has_access": True,
            "record": {"status": "settled", "tx_hash": "0xpaid"},
        } | known
    )  # fmt: skip


def session(refund: list[Transfer] | None = None, **view: object) -> Attempt:
    """A session of 30000 that served one request and was refunded."""
    return payment(
        resource="deposit", amount=30_000, spent=1, session_body={"duration": 1},
        view={
            "sessionId": "session_1", "deposited": "30000", "released": "10000",
            "remaining": "20000", "status": "refunded",
        } | view,
        refund=[BACK] if refund is None else refund,
    )  # fmt: skip


LEFT_ALONE = {"receipt": None, "nonce": "0x02", "sent": 1}
REFUSED = {"receipt": None, "is_final": True}
MOVES = [CHARGE, BACK]
OPEN = {"receipt": None, "record": {"status": "pending"}}


def end_of(deposit: Attempt, *, is_over: bool = True) -> Iterator[Violation]:
    return judge_session(deposit, price=PRICE, is_over=is_over)


def of_payment(*, is_over: bool = False, **seen: object) -> Iterator[Violation]:
    return judge_payment(payment(**seen), is_over=is_over)


def refunds(*sessions: Attempt, paid: list[Transfer], is_over: bool = False) -> Iterator[Violation]:
    return judge_refunds("0xwallet", list(sessions), paid, is_over=is_over)


def said_more() -> Attempt:
    """A session that once said to have released more than it says now."""
    seen = session()
    seen.unanswered, seen.released = 5, 20_000
    return seen


@pytest.mark.parametrize(
    ("found", "law", "says"),
    [
        (of_payment(charges=[CHARGE, CHARGE._replace(tx_hash="0xtwice")]), Law.CHARGED_ONCE, "2 times"),
        (of_payment(charges=[CHARGE._replace(to="0xthief")]), Law.MONEY_IS_SIGNED, "otherwise"),
        (of_payment(**OPEN, has_access=False), Law.PAID_IS_SERVED, "no access"),
        (of_payment(**LEFT_ALONE, has_access=False, record={}), Law.PAID_IS_SERVED, "is {}"),
        (of_payment(has_access=False), Law.RECEIPT_STAYS, "now no access"),
        (of_payment(record={}), Law.RECORD_NAMES_IT, "names None, not ['0xpaid']"),
        (of_payment(record={"status": "pending", "tx_hash": "0xpaid"}), Law.RECORD_NAMES_IT,
         "names None"),
        (of_payment(charges=[]), Law.RECORD_NAMES_IT, "names 0xpaid, not []"),
        (of_payment(**REFUSED), Law.FINAL_IS_FINAL, "refused as final, and charged"),
        (of_payment(**OPEN, has_access=False, is_good=True, is_over=True), Law.PAID_IS_SERVED, ""),
        (of_payment(**OPEN, charges=[], has_access=False, is_over=True), Law.RESOLVED, "for ever"),
        (judge_payment_id([payment(), payment()]), Law.CHARGED_ONCE, "2 times"),
        (judge_payment_id([payment(charges=[])]), Law.SERVED_IS_PAID, "no money stands"),
        (end_of(session(deposited="20000", remaining="10000")), Law.SESSION_IS_DEPOSIT, "30000"),
        (end_of(session(released="0", remaining="30000")), Law.DEBITS_ARE_SERVED, "10000 to 10000"),
        (end_of(session(remaining="0")), Law.DEBITS_ARE_SERVED, "has 0, released 10000"),
        (end_of(session([BACK._replace(to="0xthief")])), Law.REFUND_IS_THE_REST, "rest is 20000"),
        (end_of(session(status="expired")), Law.REFUND_IS_THE_REST, "still owes 20000 at the end"),
        (end_of(session(status="active")), Law.REFUND_IS_THE_REST, "has not ended"),
        (end_of(said_more(), is_over=False), Law.DEBITS_ARE_SERVED, "served 20000 to 60000"),
        (refunds(session(), paid=[BACK, BACK]), Law.REFUND_IS_THE_REST, "got 20000, 20000"),
        (refunds(session(), session(), paid=[BACK], is_over=True), Law.REFUND_IS_THE_REST,
         "0xpayer is owed 20000, 20000, and got 20000"),
        (refunds(paid=[BACK._replace(to="0xthief")]), Law.REFUND_IS_THE_REST, "0xthief is owed no"),
        (balance_is_the_sum("0xpayer", before=50_000, now=59_999, moves=MOVES),
         Law.BALANCE_IS_THE_SUM, "leave 60000"),
        (money_is_signed([CHARGE._replace(tx_hash="0xstolen")], {"0xpayer"}, {"0xpaid"}),
         Law.MONEY_IS_SIGNED, "nobody signed"),
    ],
)  # fmt: skip
def test_what_no_crash_may_do(found: Iterator[Violation], law: Law, says: str) -> None:
    assert any(each.law is law and says in each.how for each in found)
