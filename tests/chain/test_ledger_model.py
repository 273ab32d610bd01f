"""The ledger against a model: whatever is done in whatever order, both agree.

The model knows balances, used nonces and blocks, and nothing of how the ledger works.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    LedgerDriver,
    authorization,
    cancel_call,
    nonce,
    signature_of,
    transfer_call,
)
from x402sim.chain.base import Log, LogFilter
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash

PLAYERS = [ALICE, MALLORY, SHOP]
players = st.sampled_from(PLAYERS)
amounts = st.just(0) | st.integers(0, START_BASE // 3)
happened: Counter[str] = Counter()


@dataclass(frozen=True)
class Operation:
    """A transaction as the model sees it: what it says, and what must hold for it."""

    name: str
    payer: Address | None
    to: Address | None
    amount: int
    spends: tuple[Address, bytes] | None = None
    opens_s: int = -1
    closes_s: int = 2**62
    is_signed: bool = True


@dataclass(frozen=True)
class Money:
    """The model's whole world: who holds what, which nonces are gone, how much was minted."""

    balances: Mapping[Address, int]
    used: frozenset = frozenset()
    minted: int = START_BASE

    def after(self, op: Operation, now_s: int) -> "Money | None":
        """Return the world after an operation, None if it reverts."""
        if not (op.is_signed and op.opens_s < now_s < op.closes_s) or op.spends in self.used:
            return None
        used = self.used | {op.spends} if op.spends else self.used
        if op.to is None:
            return replace(self, used=used)
        balances = dict(self.balances)
        if op.payer is None:
            if not op.amount:
                return None
        elif balances[op.payer] < op.amount:
            return None
        else:
            balances[op.payer] -= op.amount
        balances[op.to] += op.amount
        return Money(balances, used, self.minted + (0 if op.payer else op.amount))


@dataclass(frozen=True)
class Mined:
    """A block of the model: the world before it, and its operations with their outcomes."""

    before: Money
    outcomes: tuple[tuple[Hash, bool], ...]


@dataclass(frozen=True)
class Model:
    """What the model knows; a value, so that a snapshot is just a reference to it."""

    money: Money
    blocks: tuple[Mined, ...] = ()
    waiting: tuple[Hash, ...] = ()
    operations: Mapping[Hash, Operation] = field(default_factory=dict)

    def mine(self, now_s: int) -> "Model":
        money, outcomes = self.money, []
        for tx_hash in self.waiting:
            after = money.after(self.operations[tx_hash], now_s)
            outcomes.append((tx_hash, after is not None))
            money = after or money
        return replace(
            self, money=money, blocks=(*self.blocks, Mined(self.money, tuple(outcomes))), waiting=()
        )

    def reorg(self, now_s: int, depth: int, drop: set[Hash]) -> "Model":
        kept, replaced = self.blocks[:-depth], self.blocks[-depth:]
        lost = [tx for mined in replaced for tx, _ in mined.outcomes] + list(self.waiting)
        model = replace(self, money=replaced[0].before, blocks=kept, waiting=())
        for _ in range(depth - 1):
            model = model.mine(now_s)
        return replace(model, waiting=tuple(tx for tx in lost if tx not in drop)).mine(now_s)


class LedgerAgainstModel(RuleBasedStateMachine):
    """Everything one can do to a ledger, in any order."""

    @initialize()
    def begin(self) -> None:
        self.driver = LedgerDriver()
        zeros = dict.fromkeys((w.address_bytes for w in PLAYERS), 0)
        self.model = Model(Money(zeros | {ALICE.address_bytes: START_BASE}))
        self.snapshots: dict[int, Model] = {}
        self.automine = True
        self.used_before: set = set()
        self.drawn = 0

    @property
    def now_s(self) -> int:
        return int(self.driver.now[0])

    def send(self, op: Operation, data: bytes, sender: Wallet = RELAYER) -> None:
        tx_hash = self.driver.put(data, sender)
        assert tx_hash not in self.model.operations or tx_hash not in self.known()
        model = self.model
        self.model = replace(
            model,
            waiting=(*model.waiting, tx_hash),
            operations={**model.operations, tx_hash: op},
        )
        if self.automine:
            self.mined()
        happened[f"{op.name} sent"] += 1

    def known(self) -> set[Hash]:
        return {tx for b in self.model.blocks for tx, _ in b.outcomes} | set(self.model.waiting)

    def mined(self) -> None:
        self.model = self.model.mine(self.now_s)
        self.count()

    def count(self) -> None:
        for tx_hash, succeeded in self.model.blocks[-1].outcomes:
            name = self.model.operations[tx_hash].name
            happened[f"{name} {'done' if succeeded else 'reverted'}"] += 1

    @rule(to=players, amount=amounts)
    def mint(self, to: Wallet, amount: int) -> None:
        op = Operation("mint", None, to.address_bytes, amount)
        self.send(op, abi.mint(to.address_bytes, amount), OWNER)

    @rule(payer=players, to=players, amount=amounts)
    def transfer(self, payer: Wallet, to: Wallet, amount: int) -> None:
        op = Operation("transfer", payer.address_bytes, to.address_bytes, amount)
        self.send(op, abi.transfer(to.address_bytes, amount), payer)

    @rule(
        payer=players,
        to=players,
        amount=amounts,
        age=st.integers(0, 5),
        opens=st.sampled_from([-60, -60, -60, -1, 0, 30]),
        closes=st.sampled_from([300, 300, 300, 1, 0]),
        forged=st.sampled_from([False, False, False, True]),
        receive=st.booleans(),
    )
    def authorized(self, payer, to, amount, age, opens, closes, forged, receive) -> None:
        spent = self.nonce(age)
        auth = authorization(
            from_=payer.address_bytes,
            to=to.address_bytes,
            value=amount,
            valid_after=self.now_s + opens,
            valid_before=self.now_s + closes,
            nonce=spent,
        )
        op = Operation(
            "forged" if forged else "authorized",
            auth.from_,
            auth.to,
            amount,
            (auth.from_, spent),
            auth.valid_after,
            auth.valid_before,
            not forged,
        )
        signature = signature_of(auth, by=OWNER if forged else payer, receive=receive)
        data = transfer_call(auth, signature, receive=receive)
        self.send(op, data, to if receive else RELAYER)

    @rule(payer=players, age=st.integers(0, 5), forged=st.sampled_from([False, False, True]))
    def cancel(self, payer: Wallet, age: int, forged: bool) -> None:
        spent = self.nonce(age)
        spends = (payer.address_bytes, spent)
        name = "forged cancel" if forged else "cancel"
        op = Operation(name, None, None, 0, spends, is_signed=not forged)
        self.send(op, cancel_call(spent, of=payer, by=OWNER if forged else payer))

    def nonce(self, age: int) -> bytes:
        """Return a new nonce (age 0 to 2), or one of the last few once more."""
        if age < 3:
            self.drawn += 1
            return nonce(self.drawn)
        return nonce(max(1, self.drawn + 3 - age))

    @rule(blocks=st.integers(1, 3))
    def mine(self, blocks: int) -> None:
        asyncio.run(self.driver.ledger.mine(blocks))
        for _ in range(blocks):
            self.mined()
        happened["mine"] += 1

    @rule(on=st.booleans())
    def set_automine(self, on: bool) -> None:
        asyncio.run(self.driver.ledger.set_automine(on))
        if on and self.model.waiting:
            self.mined()
        self.automine = on
        happened[f"automine {'on' if on else 'off'}"] += 1

    @rule(seconds=st.sampled_from([0.5, 1, 15, 301]))
    def pass_time(self, seconds: float) -> None:
        self.driver.now[0] += seconds

    @rule()
    def snapshot(self) -> None:
        self.snapshots[asyncio.run(self.driver.ledger.snapshot())] = self.model
        happened["snapshot"] += 1

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def revert(self, data) -> None:
        number = data.draw(st.sampled_from(sorted(self.snapshots)))
        asyncio.run(self.driver.ledger.revert(number))
        self.model = self.snapshots[number]
        self.snapshots = {n: m for n, m in self.snapshots.items() if n < number}
        self.used_before = set()
        happened["revert"] += 1

    @precondition(lambda self: self.model.blocks)
    @rule(data=st.data())
    def reorg(self, data) -> None:
        blocks = self.model.blocks
        depth = data.draw(st.integers(1, min(4, len(blocks))))
        mined = [tx for b in blocks[-depth:] for tx, _ in b.outcomes]
        drop = data.draw(st.sets(st.sampled_from(mined), max_size=2)) if mined else set()
        asyncio.run(self.driver.ledger.reorg(depth, drop))
        self.snapshots = {
            n: m for n, m in self.snapshots.items() if len(m.blocks) <= len(blocks) - depth
        }
        self.model = self.model.reorg(self.now_s, depth, drop)
        self.count()
        self.used_before = set()
        happened["reorg"] += 1
        happened["dropped"] += len(drop)

    @invariant()
    def the_ledger_agrees_with_the_model(self) -> None:
        state, model = self.driver.state, self.model
        money = model.money
        assert {a: state.balances.get(a, 0) for a in money.balances} == money.balances
        assert set(state.authorizations) == money.used
        assert tuple(sorted(state.waiting, key=state.waiting.get)) == model.waiting
        assert [b.tx_hashes for b in state.blocks.values()] == [
            (),
            *(tuple(tx for tx, _ in mined.outcomes) for mined in model.blocks),
        ]
        assert {tx: r.succeeded for tx, r in state.receipts.items()} == {
            tx: ok for mined in model.blocks for tx, ok in mined.outcomes
        }
        assert set(state.transactions) == self.known()

    @invariant()
    def money_is_conserved(self) -> None:
        balances = self.driver.state.balances
        assert min(balances.values()) >= 0
        assert sum(balances.values()) == self.driver.state.supply == self.model.money.minted
        asked = self.driver.view(abi.TOTAL_SUPPLY)
        assert int.from_bytes(asked) == self.model.money.minted

    @invariant()
    def a_nonce_once_used_stays_used(self) -> None:
        used = set(self.driver.state.authorizations)
        assert used >= self.used_before
        self.used_before = used

    @invariant()
    def the_logs_tell_the_balances(self) -> None:
        told = Counter({ALICE.address_bytes: START_BASE})
        for log in self.transfer_logs():
            sender, to = (Address(topic[12:]) for topic in log.topics[1:])
            told[sender] -= int.from_bytes(log.data)
            told[to] += int.from_bytes(log.data)
        del told[bytes(20)]
        assert {a: n for a, n in told.items() if n} == {
            a: n for a, n in self.driver.state.balances.items() if n
        }

    def transfer_logs(self) -> list[Log]:
        wanted = LogFilter(0, 10**6, topics=((abi.TRANSFER_EVENT,),))
        return asyncio.run(self.driver.ledger.logs(wanted))


ENOUGH_RUNS = 100
"""So many have done everything there is."""


@pytest.mark.clause("5/nonce-once", "5/window", "5/signature-proves")
@pytest.mark.parametrize("runs", [10, pytest.param(300, marks=pytest.mark.thorough)])
def test_the_ledger_agrees_with_the_model(runs: int):
    happened.clear()
    campaign = settings(
        max_examples=runs, stateful_step_count=40, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(LedgerAgainstModel, settings=campaign)
    assert not happened["forged done"] + happened["forged cancel done"]
    tried = [
        f"{name} {end}"
        for name in ("mint", "transfer", "authorized", "cancel")
        for end in ("done", "reverted")
    ]
    tried += ["forged reverted", "forged cancel reverted", "mine", "automine on", "automine off"]
    tried += ["snapshot", "revert", "reorg", "dropped"]
    if runs >= ENOUGH_RUNS:
        assert [name for name in tried if not happened[name]] == []
