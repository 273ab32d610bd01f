"""The ledger against a real EVM: whatever is done in whatever order, both do the same.

Circle's own contract runs on anvil. The ledger must accept and refuse the same calls with the same
words, charge the same gas for what it accepts, and have the same blocks, balances, authorization
states, roles and events after every step.
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from tests.campaign import at_length
from tests.chain.helpers import (
    ALICE,
    MALLORY,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    TOKEN,
    authorization,
    cancel_call,
    nonce,
    signature_of,
    transfer_call,
)
from tests.evm.helpers import EVERYBODY, PLAYERS, Town, estimate
from tests.strategies import CURVE_ORDER
from x402sim.chain.base import Call, Chain, Log, LogFilter, Reverted, TxReceipt
from x402sim.chain.reverts import cause
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, PrivateKey, parse_key, sign, to_hex
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    TRANSFER_TYPEHASH,
    Domain,
    Permit,
    cancel_digest,
    permit_digest,
    transfer_digest,
)
from x402sim.protocol.networks import MAINNET
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    PERMIT2,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
)

OPERATIONS_A_RUN = 40
"""How many there must be, at least, in one run."""
ENOUGH_RUNS = 15
"""So many do everything there is, and are drawn alike every time; more are drawn anew."""
ACCOUNTS = [*(wallet.address_bytes for wallet in PLAYERS), ZERO_ADDRESS, TOKEN]
happened: Counter[str] = Counter()

accounts = st.sampled_from([*ACCOUNTS[:-2], *ACCOUNTS[:-2], *ACCOUNTS])
spenders = accounts | st.just(PERMIT2)
players = st.sampled_from(PLAYERS)
payers = st.sampled_from([ALICE, ALICE, MALLORY, SHOP])
amounts = st.sampled_from([0, 1]) | st.integers(0, START_BASE // 3) | st.just(START_BASE * 10)
TOO_MUCH = st.sampled_from([2**256 - 1, 2**256 - START_BASE, 2**255, 2**255 - 1])

# --- what can be wrong with an authorization -----------------------------------------

DOMAINS = {
    "another name": {"name": "USDC"},
    "another version": {"version": "3"},
    "another chain": {"chain_id": 25},
    "another contract": {"verifying_contract": MAINNET.asset},
}
"""What is different in the domain that is signed."""
SIGNATURES: dict[str, Callable[[bytes], bytes]] = {
    "high s": lambda s: s[:32] + high(s[32:64]) + bytes([55 - s[64]]),
    "v of 0 or 1": lambda s: s[:64] + bytes([s[64] - 27]),
    "v of 29": lambda s: s[:64] + b"\x1d",
    "the other v": lambda s: s[:64] + bytes([55 - s[64]]),
    "no key": lambda s: b"\xff" * 32 + s[32:],
    "zeros": lambda s: bytes(64) + s[64:],
}
WINDOWS_S = {
    "opens now": (0, 300),
    "opened a second ago": (-1, 300),
    "closes now": (-60, 0),
    "closes in a second": (-60, 1),
    "never closes": (-60, 2**60),
    "opens and closes now": (0, 0),
}
"""When the window opens and closes, from now."""
FORGERIES = [*DOMAINS, *SIGNATURES, "another signer"]
SPENDING = [*FORGERIES, *WINDOWS_S, "the other type", "a stranger calls", "used", "as bytes"]
RIVALS = ["another signer", "high s", "opens now", "closes now", "used", "a stranger calls"]
"""Of any two of these, the one that is checked first must be told."""
CANCELLING = [*FORGERIES, "used"]
PERMIT_ENDS_S = {"ended a second ago": -1, "ends now": 0, "never ends": 2**256 - 1}
"""When a permit ends, from now."""
PERMITTING = [*FORGERIES, *PERMIT_ENDS_S, "another nonce", "as bytes"]
MESSAGES: dict[str, Callable[[Permit2Authorization, int], Permit2Authorization]] = {
    "another spender": lambda auth, _: replace(auth, spender=PERMIT2),
    "another facilitator": lambda auth, _: replace(auth, facilitator=MALLORY.address_bytes),
    "another token": lambda auth, _: replace(auth, token=MAINNET.asset),
    "nobody's": lambda auth, _: replace(auth, from_=ZERO_ADDRESS),
    "opens in a second": lambda auth, now_s: replace(auth, valid_after=now_s + 1),
    "opens this second": lambda auth, now_s: replace(auth, valid_after=now_s),
    "ends this second": lambda auth, now_s: replace(auth, deadline=now_s),
    "ended": lambda auth, now_s: replace(auth, deadline=now_s - 1),
}
"""What is different in a signed message of Permit2, at a second."""
TAKING = [*MESSAGES, *SIGNATURES, "another signer", "used", "above the maximum", "changed later"]
SPONSORED = {"no permit": None, "a permit that fails": 0, "a permit too small": -1, "a permit": 0}
"""The permit beside a message, and what its amount is above the maximum."""
WORDS = 3
"""How many words of nonces a payer uses."""
OF_TAKING = 5_200
"""The most gas that differs in a call of Permit2 or of a proxy, as `ledger/gas.py` says."""


def high(s: bytes) -> bytes:
    return (CURVE_ORDER - int.from_bytes(s)).to_bytes(32)


def some(faults: list[str]) -> st.SearchStrategy[frozenset[str]]:
    """Return nothing wrong, most of all; or one thing; or several, for the order of checks."""
    one = st.sampled_from(faults)
    several = st.frozensets(one, max_size=3)
    return st.one_of(st.just(frozenset()), one.map(lambda fault: frozenset({fault})), several)


def signed(
    digest: Callable[[Domain], bytes],
    by: Wallet,
    faults: frozenset[str],
    domain: Domain,
) -> bytes:
    """Return a signature with some faults."""
    wrong: dict[str, Any] = next((DOMAINS[fault] for fault in DOMAINS if fault in faults), {})
    domain = replace(domain, **wrong)
    key = (OWNER if "another signer" in faults else by).private_key
    signature = sign(digest(domain), PrivateKey(parse_key(key)))
    for fault, spoil in SIGNATURES.items():
        signature = spoil(signature) if fault in faults else signature
    return signature


def spending(
    payer: Wallet,
    to: Address,
    amount: int,
    faults: frozenset[str],
    *,
    receive: bool,
    now_s: int,
    used: bytes,
    domain: Domain,
) -> tuple[bytes, Wallet]:
    """Return a payment or a receipt with some faults, and the sender."""
    opens, closes = next((WINDOWS_S[f] for f in WINDOWS_S if f in faults), (-60, 300))
    auth = authorization(
        from_=payer.address_bytes,
        to=to,
        value=amount,
        valid_after=now_s + opens,
        valid_before=now_s + closes,
        nonce=used,
    )
    of_receive = receive != ("the other type" in faults)
    typehash = RECEIVE_TYPEHASH if of_receive else TRANSFER_TYPEHASH
    signature = signed(
        lambda domain: transfer_digest(auth, domain, typehash), payer, faults, domain
    )
    payee = next((wallet for wallet in PLAYERS if wallet.address_bytes == to), RELAYER)
    caller = payee if receive and "a stranger calls" not in faults else RELAYER
    packed = "as bytes" in faults
    return transfer_call(auth, signature, receive=receive, packed=packed), caller


def cancelling(payer: Wallet, used: bytes, faults: frozenset[str], domain: Domain) -> bytes:
    """Return a cancellation with some faults."""
    account = payer.address_bytes
    signature = signed(lambda domain: cancel_digest(account, used, domain), payer, faults, domain)
    return abi.cancel_authorization(account, used, signature)


STRANGE: dict[str, Callable[[Domain], bytes]] = {
    "a good one": lambda domain: good_call(domain),
    "nothing": lambda _: b"",
    "no such function": lambda domain: bytes.fromhex("deadbeef") + good_call(domain)[4:],
    "too short": lambda domain: good_call(domain)[:-1],
    "an address with dirt": lambda domain: dirty(good_call(domain, "dirt"), 4),
    "v of 283": lambda domain: dirty(good_call(domain, "283"), 4 + 6 * 32 + 30),
    "signature as bytes": lambda domain: good_call(domain, packed=True),
    "cancellation as bytes": lambda domain: cancel_call(
        nonce("strange"), packed=True, domain=domain
    ),
    "half a signature": lambda _: transfer_call(authorization(), bytes(32)),
    "no signature": lambda _: transfer_call(authorization(), b""),
    "typehash": lambda _: abi.selector("TRANSFER_WITH_AUTHORIZATION_TYPEHASH()"),
}
"""Calls that no function takes, or not with these arguments, or not with native money."""


def good_call(domain: Domain, name: str = "strange", *, packed: bool = False) -> bytes:
    auth = authorization(nonce=nonce(name))
    return transfer_call(auth, signature_of(auth, domain=domain), packed=packed)


def dirty(call: bytes, place: int) -> bytes:
    return call[:place] + b"\x01" + call[place + 1 :]


ROLES = {
    "pause": abi.PAUSE,
    "unpause": abi.UNPAUSE,
    "unpause, again": abi.UNPAUSE,
    "a stranger's pause": abi.PAUSE,
    "a stranger's blacklisting": abi.calldata(abi.BLACKLIST, ALICE.address_bytes),
    "blacklist": abi.calldata(abi.BLACKLIST, SHOP.address_bytes),
    "unblacklist": abi.calldata(abi.UNBLACKLIST, SHOP.address_bytes),
    "unblacklist, again": abi.calldata(abi.UNBLACKLIST, SHOP.address_bytes),
    "a stranger's unpause": abi.UNPAUSE,
    "a stranger's unblacklisting": abi.calldata(abi.UNBLACKLIST, ALICE.address_bytes),
}
"""What those with a role at the token do."""


Waiting = tuple[str, frozenset[str], tuple[Hash, Hash]]


class BothChains(RuleBasedStateMachine):
    """Everything one can do to a chain, done to both."""

    town: Town

    @initialize()
    def begin(self) -> None:
        self.town.begin()
        self.anvil = self.town.anvil
        self.ledger = self.town.ledger()
        self.domain = self.town.network.domain
        self.chains: tuple[Chain, Chain] = (self.anvil, self.ledger)
        self.snapshots: list[Snapshot] = []
        self.automine = True
        self.waiting: list[Waiting] = []
        self.sent: list[tuple[Hash, Hash]] = []
        self.spent: list[tuple[Address, bytes]] = []
        self.messages: list[int] = []
        """The nonces of the messages of Permit2."""

    @property
    def now_s(self) -> int:
        return self.town.clock.now_s()

    # --- how it is done to both ------------------------------------------------------

    def both(self, do: Callable[[Chain], Coroutine[Any, Any, Any]]) -> tuple[Any, Any]:
        """Return what the two chains answer to the same request."""
        real, ours = (self.town.run(do(chain)) for chain in self.chains)
        return real, ours

    def send(
        self,
        name: str,
        data: bytes,
        sender: Wallet,
        faults: frozenset[str] = frozenset(),
        value: int = 0,
        to: Address = TOKEN,
    ) -> None:
        call = Call(sender.address_bytes, to, data, value)
        if len(self.sent) % 2 == 0:  # a try takes as long as a transaction
            estimates = to == TOKEN and len(self.sent) % 8 == 0  # which take a node longer
            tried = [self.town.run(attempt(chain, call, estimates)) for chain in self.chains]
            assert tried[0] == tried[1]
        hashes = self.both(lambda chain: chain.send(call))
        self.sent.append(hashes)
        self.waiting.append((name, faults, hashes))
        if self.automine:
            self.mined()

    def mined(self) -> None:
        """Compare the outcome of all waiting transactions."""
        for name, faults, hashes in self.waiting:
            receipt = self.compare(hashes)
            reason = receipt.revert_reason
            end = "done" if reason is None else "refused"
            happened[f"{name}: {end}"] += 1
            for fault in faults:
                happened[f"with {fault}: {end}"] += 1
            if reason is not None:
                of_token = receipt.call.to == TOKEN
                happened[f"for {cause(reason).name if of_token else reason[:16]}"] += 1
        self.waiting.clear()

    def compare(self, hashes: tuple[Hash, Hash]) -> TxReceipt:
        """Compare the outcome of a transaction on the two chains; return anvil's receipt."""
        real, ours = (
            self.town.run(chain.receipt(tx_hash))
            for chain, tx_hash in zip(self.chains, hashes, strict=True)
        )
        assert outcome(ours) == outcome(real)
        if real is not None:
            assert abs(ours.gas_used - real.gas_used) <= OF_TAKING
        return real

    def nonce(self, payer: Wallet, is_used: bool) -> bytes:
        """Return a new nonce, or a used nonce of this payer, if any."""
        account = payer.address_bytes
        gone = [used for who, used in self.ledger.machine.state.authorizations if who == account]
        if is_used and gone:
            return gone[len(self.spent) % len(gone)]
        self.spent.append((account, nonce(len(self.spent))))
        return self.spent[-1][1]

    # --- the operations --------------------------------------------------------------

    @rule(name=st.sampled_from(sorted(ROLES)))
    def govern(self, name: str) -> None:
        sender = ALICE if name.startswith("a stranger") else OWNER
        self.send(f"govern, {name}", ROLES[name], sender)

    @rule(to=accounts, amount=amounts | TOO_MUCH, by=st.sampled_from([OWNER, OWNER, MALLORY]))
    def mint(self, to: Address, amount: int, by: Wallet) -> None:
        self.send("mint", abi.mint(to, amount), by)

    @rule(payer=players, to=accounts, amount=amounts)
    def transfer(self, payer: Wallet, to: Address, amount: int) -> None:
        name = "self-transfer" if payer.address_bytes == to else "transfer"
        self.send(name, abi.transfer(to, amount), payer)

    @rule(owner=players, spender=spenders, amount=amounts | TOO_MUCH)
    def approve(self, owner: Wallet, spender: Address, amount: int) -> None:
        self.send("approve", abi.calldata(abi.APPROVE, spender, amount), owner)

    @rule(owner=players, spender=spenders, amount=amounts | TOO_MUCH, more=st.booleans())
    def change_allowance(self, owner: Wallet, spender: Address, amount: int, more: bool) -> None:
        function = abi.INCREASE_ALLOWANCE if more else abi.DECREASE_ALLOWANCE
        name = "increase" if more else "decrease"
        self.send(name, abi.calldata(function, spender, amount), owner)

    @rule(by=players, payer=accounts, to=accounts, amount=amounts)
    def transfer_from(self, by: Wallet, payer: Address, to: Address, amount: int) -> None:
        self.send("transfer from", abi.calldata(abi.TRANSFER_FROM, payer, to, amount), by)

    @rule(owner=players, spender=spenders, amount=amounts | TOO_MUCH, faults=some(PERMITTING))
    def permit(self, owner: Wallet, spender: Address, amount: int, faults: frozenset[str]) -> None:
        account = owner.address_bytes
        used = self.ledger.machine.state.permit_nonces.get(account, 0)
        late = next((PERMIT_ENDS_S[fault] for fault in PERMIT_ENDS_S if fault in faults), 300)
        deadline = late if late > 2**200 else self.now_s + late
        asked = Permit(account, spender, amount, used + ("another nonce" in faults), deadline)
        signature = signed(lambda domain: permit_digest(asked, domain), owner, faults, self.domain)
        data = abi.permit(asked, signature, packed="as bytes" in faults)
        self.send("permit", data, RELAYER, faults)

    @rule(payer=payers, to=accounts, amount=amounts, faults=some(SPENDING))
    def pay(self, payer: Wallet, to: Address, amount: int, faults: frozenset[str]) -> None:
        self.spend(False, payer, to, amount, faults)

    @rule(payer=payers, to=accounts, amount=amounts, faults=some(SPENDING))
    def receive(self, payer: Wallet, to: Address, amount: int, faults: frozenset[str]) -> None:
        self.spend(True, payer, to, amount, faults)

    def spend(self, receive, payer, to, amount, faults) -> None:
        data, caller = spending(
            payer,
            to,
            amount,
            faults,
            receive=receive,
            now_s=self.now_s,
            used=self.nonce(payer, "used" in faults),
            domain=self.domain,
        )
        self.send("receive" if receive else "pay", data, caller, faults)

    @rule(payer=players, faults=some(CANCELLING))
    def cancel(self, payer: Wallet, faults: frozenset[str]) -> None:
        used = self.nonce(payer, "used" in faults)
        data = cancelling(payer, used, faults, self.domain)
        self.send("cancel", data, RELAYER, faults)

    @rule(
        payer=payers,
        to=accounts,
        amount=amounts | st.integers(1, START_BASE // 100),
        upto=st.booleans(),
        part=st.sampled_from([0, 1, 500, 1000, 1000]),
        faults=some(TAKING),
        permit=st.sampled_from(sorted(SPONSORED)),
        approves=st.booleans(),
    )
    def settle(
        self,
        payer: Wallet,
        to: Address,
        amount: int,
        upto: bool,
        part: int,
        faults: frozenset[str],
        permit: str,
        approves: bool,
    ) -> None:
        """Settle a message of Permit2 by a proxy: in `upto`, `part` of 1000 of its amount."""
        if approves:
            self.approve(payer, PERMIT2, amount)
        used, nonces = len(self.messages), self.messages
        nonce = nonces[used // 2] if nonces and "used" in faults else used % WORDS << 8 | used
        nonces.append(nonce)
        auth = Permit2Authorization(
            from_=payer.address_bytes,
            token=TOKEN,
            amount=amount,
            spender=UPTO_PROXY if upto else EXACT_PROXY,
            nonce=nonce,
            deadline=self.now_s + 300,
            to=to,
            valid_after=self.now_s - 60,
            facilitator=RELAYER.address_bytes if upto else None,
        )
        if not upto:
            faults -= {"another facilitator", "above the maximum"}
        for fault in MESSAGES:
            auth = MESSAGES[fault](auth, self.now_s) if fault in faults else auth
        chain_id = self.town.network.chain_id
        signature = signed(lambda _: permit2_digest(auth, chain_id), payer, faults, self.domain)
        if "changed later" in faults:
            auth = replace(auth, amount=auth.amount + 1)
        amount_base = auth.amount * part // 1000 if upto else auth.amount
        if "above the maximum" in faults:
            amount_base = auth.amount + 1
        data = abi.settle(auth, amount_base, signature, self.permit_beside(auth, permit))
        name = f"settle {'upto' if upto else 'exact'}, with {permit}"
        told = frozenset(f"{fault}, in a message" for fault in faults)
        self.send(name, data, RELAYER, told, to=UPTO_PROXY if upto else EXACT_PROXY)

    def permit_beside(self, auth: Permit2Authorization, kind: str) -> tuple[Permit, bytes] | None:
        """Return the owner's permit for Permit2, as it is put beside a message."""
        if (more := SPONSORED[kind]) is None:
            return None
        used = self.ledger.machine.state.permit_nonces.get(auth.from_, 0)
        value, nonce = max(auth.amount + more, 0), used + (kind == "a permit that fails")
        permit = Permit(auth.from_, PERMIT2, value, nonce, 2**60)
        owner = next((each for each in PLAYERS if each.address_bytes == auth.from_), OWNER)
        key = PrivateKey(parse_key(owner.private_key))
        return permit, sign(permit_digest(permit, self.domain), key)

    @rule(
        payer=players,
        word=st.integers(0, WORDS - 1),
        mask=st.integers(0, 255).map(lambda bit: 1 << bit),
    )
    def invalidate(self, payer: Wallet, word: int, mask: int) -> None:
        data = abi.calldata(abi.INVALIDATE_NONCES, word, mask)
        self.send("invalidate nonces", data, payer, to=PERMIT2)

    @rule(name=st.sampled_from(sorted(STRANGE)), value=st.sampled_from([0, 0, 0, 1]))
    def strange(self, name: str, value: int) -> None:
        self.send("strange", STRANGE[name](self.domain), RELAYER, value=value)

    @rule(seconds=st.sampled_from([0.5, 1, 15, 301]))
    def pass_time(self, seconds: float) -> None:
        self.town.now[0] += seconds
        happened["time passes"] += 1

    @rule(blocks=st.integers(1, 3))
    def mine(self, blocks: int) -> None:
        self.both(lambda chain: chain.controls.mine(blocks))
        self.mined()
        happened["mine"] += 1

    @rule(on=st.booleans())
    def set_automine(self, on: bool) -> None:
        self.both(lambda chain: chain.controls.set_automine(on))
        self.automine = on
        if on:
            self.mined()
        happened[f"automine {'on' if on else 'off'}"] += 1

    @rule()
    def snapshot(self) -> None:
        height = self.town.run(self.ledger.height())
        numbers = self.both(lambda chain: chain.controls.snapshot())
        self.snapshots.append(Snapshot(height, numbers, list(self.waiting)))
        happened["snapshot"] += 1

    @precondition(lambda self: self.within_reach())
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        self.go_back(data.draw(st.sampled_from(self.within_reach())))

    def go_back(self, snapshot: "Snapshot") -> None:
        for chain, number in zip(self.chains, snapshot.numbers, strict=True):
            self.town.run(chain.controls.revert(number))
        self.snapshots = self.snapshots[: self.snapshots.index(snapshot)]
        self.waiting = list(snapshot.waiting)
        self.compare_the_past()
        happened["revert"] += 1

    def within_reach(self) -> list["Snapshot"]:
        """Return the snapshots to go back to; a node that mines at once leaves nothing waiting."""
        return [s for s in self.snapshots if not (self.automine and s.waiting)]

    @rule()
    def drop(self) -> None:
        self.both(lambda chain: chain.controls.drop())
        self.waiting.clear()
        happened["drop"] += 1

    @precondition(lambda self: self.town.run(self.ledger.height()))
    @rule(depth=st.integers(1, 3), drop=st.booleans())
    def reorg(self, depth: int, drop: bool) -> None:
        """Replace blocks; `drop`: without the last transaction, behind which nothing waits."""
        height = self.town.run(self.ledger.height())
        depth = min(depth, height)
        dropped = self.sent[-1:] if drop else []
        for number, chain in enumerate(self.chains):
            hashes = [pair[number] for pair in dropped]
            self.town.run(chain.controls.reorg(depth, hashes))
        self.waiting = [each for each in self.waiting if each[2] not in dropped]
        self.snapshots = [s for s in self.snapshots if s.height <= height - depth]
        self.mined()
        self.compare_the_past()
        happened["reorg"] += 1

    def compare_the_past(self) -> None:
        """Compare the outcome of the last few transactions, of which undone ones are unknown."""
        for hashes in self.sent[-8:]:
            self.compare(hashes)

    # --- what must be the same -------------------------------------------------------

    @invariant()
    def both_are_in_the_same_state(self) -> None:
        asked = everything(self.spent)
        real, ours = (self.town.driver(chain).rpc.results(*asked) for chain in self.chains)
        for question, one, other in zip(asked[1:], ours[1:], real[1:], strict=True):
            assert one == other, question
        assert comparable(ours[0]) == comparable(real[0])

    @invariant()
    def both_tell_the_same_new_events(self) -> None:
        """Receipts have their events, too; a filter is asked now and then."""
        if len(self.sent) % 4 == 3:
            self.compare_logs(self.town.run(self.ledger.height()) - 6)

    def teardown(self) -> None:
        self.compare_logs(0)

    def compare_logs(self, since: int) -> None:
        """Compare all events from a block on."""
        real, ours = self.both(lambda chain: chain.logs(LogFilter(since, 2**63)))
        assert [*map(event, ours)] == [*map(event, real)]


class ByPermit2(BothChains):
    """The same with payments by Permit2 alone, in a token that nobody pauses."""

    govern = strange = cancel = pay = receive = change_allowance = transfer_from = None


@dataclass(frozen=True)
class Snapshot:
    height: int
    numbers: tuple[int, int]
    waiting: list[Waiting]


def event(log: Log) -> tuple:
    """Return a log without what the chains number differently."""
    return log.address, log.topics, log.data, log.block_number, log.tx_index, log.index


OTHER_LENGTH = "ECRecover: invalid signature length"
"""The only refusal here whose gas differs: the copies of such a signature are not counted."""


def outcome(receipt: TxReceipt | None) -> tuple | None:
    """Return the outcome of a transaction, None if unknown or waiting."""
    if receipt is None:
        return None
    place = receipt.block_number, receipt.index
    is_exact = receipt.revert_reason != OTHER_LENGTH and receipt.call.to == TOKEN
    cost = receipt.gas_used if is_exact else None
    return receipt.revert_reason, cost, place, receipt.call, [*map(event, receipt.logs)]


async def attempt(chain: Chain, call: Call, estimates: bool) -> tuple[bytes | int | str, ...]:
    """Return the answer of a tried call, and perhaps the needed gas; or why it would be refused."""
    try:
        return await chain.call(call), await estimate(chain, call) if estimates else 0
    except Reverted as reverted:
        return (str(reverted),)


def everything(spent: list[tuple[Address, bytes]]) -> list[tuple[Any, ...]]:
    """Return what asks for all one can see of the token, the newest block and the accounts."""
    allowance, nonces = abi.selector("allowance(address,address)"), abi.selector("nonces(address)")
    views = [
        abi.TOTAL_SUPPLY,
        *(abi.balance_of(account) for account in (*ACCOUNTS, OWNER.address_bytes)),
        *(abi.calldata(allowance, *pair) for pair in product(ACCOUNTS[:3], repeat=2)),
        *(abi.calldata(nonces, owner) for owner in ACCOUNTS[:3]),
        *(abi.authorization_state(*each) for each in spent[-12:]),
        *(abi.allowance(owner, PERMIT2) for owner in ACCOUNTS[:3]),
    ]
    words = (number << 8 for number in range(WORDS))
    bitmaps = [abi.nonce_bitmap(*pair) for pair in product(ACCOUNTS[:3], words)]
    asked = [(TOKEN, view) for view in views] + [(PERMIT2, view) for view in bitmaps]
    calls = ({"to": to_hex(to), "input": to_hex(view)} for to, view in asked)
    return [
        ("eth_getBlockByNumber", "latest", False),
        *(("eth_getTransactionCount", wallet.address, "pending") for wallet in EVERYBODY),
        *(("eth_call", call, "latest") for call in calls),
    ]


def comparable(block: dict[str, Any]) -> tuple[Any, ...]:
    """Return a block without what the chains number or price differently."""
    return block["number"], block["timestamp"], len(block["transactions"])


def walk_through(chains: BothChains, *, whole: bool) -> None:
    """Do everything once by hand, for every run; in an everyday run few things at once."""
    alice, shop, mallory = (wallet.address_bytes for wallet in (ALICE, SHOP, MALLORY))

    def sign(*wrong: str) -> None:
        faults = frozenset(wrong)
        chains.pay(ALICE, shop, 7, faults & set(SPENDING))
        chains.receive(ALICE, shop, 7, faults & set(SPENDING))
        chains.permit(ALICE, mallory, 1000, faults & set(PERMITTING))
        chains.cancel(ALICE, faults & set(CANCELLING))

    chains.begin()
    chains.mint(shop, 1000, OWNER)
    for faults in ((), *zip({*SPENDING, *PERMITTING}), *combinations(RIVALS, 2 if whole else 6)):
        sign(*faults)
    for amount in (0, 7, 2**256 - 1):
        chains.approve(ALICE, mallory, amount)
        chains.approve(ALICE, ZERO_ADDRESS, amount)
        chains.change_allowance(ALICE, mallory, 5, True)
        chains.change_allowance(ALICE, mallory, 6, False)
        for to in (shop, alice, mallory, ZERO_ADDRESS):
            chains.transfer_from(MALLORY, alice, to, 3)
    for name, value in product(STRANGE, (0, 1) if whole else (0,)):
        chains.strange(name, value)
    for name in ROLES:
        chains.govern(name)
        sign()
        if name in ("pause", "blacklist"):  # which are told before anything else that is wrong
            sign(*RIVALS)
        chains.transfer(ALICE, shop, 7)
        chains.mint(alice, 7, MALLORY)
    for name in ("blacklist", "pause", "unpause", "unblacklist"):
        chains.govern(name)
        sign()
    edges = (0, 1, 2**255 - 1, 2**256 - 1) if whole else (0, 2**256 - 1)
    for to, amount in product((ZERO_ADDRESS, TOKEN, shop, alice), edges):
        chains.mint(to, amount, OWNER)
        chains.transfer(ALICE, to, amount)
        chains.pay(ALICE, to, amount, frozenset())
    chains.both_are_in_the_same_state()
    chains.compare_logs(0)


def settle_by_permit2(chains: BothChains) -> None:
    """Settle messages of Permit2 by both proxies, with each fault, and with and without permits."""

    def settle(
        amount: int,
        *wrong: str,
        permit: str = "no permit",
        part: int = 500,
        to: Address = SHOP.address_bytes,
    ) -> None:
        for upto in (False, True):
            chains.settle(ALICE, to, amount, upto, part, frozenset(wrong), permit, False)

    chains.begin()
    for allowance_base in (0, 11, 3 * START_BASE):
        chains.approve(ALICE, PERMIT2, allowance_base)
        for permit in SPONSORED:
            settle(11, permit=permit)
    chains.approve(ALICE, PERMIT2, 3 * START_BASE)
    for faults in ((), *zip(TAKING), *combinations(("another signer", "used", "ended"), 2)):
        settle(7, *faults)
    for part, amount in product((0, 1000), (0, 1, 2 * START_BASE)):
        settle(amount, part=part)
    chains.invalidate(ALICE, 0, 2**200 - 1)
    settle(7)
    for to in (ZERO_ADDRESS, ALICE.address_bytes, TOKEN):
        settle(7, to=to)
    for name in ("pause", "blacklist", "unpause", "unblacklist"):
        chains.govern(name)
        settle(7)
        settle(7, permit="a permit")
    chains.both_are_in_the_same_state()
    chains.compare_logs(0)


def control(chains: BothChains) -> None:
    """Mine, go back, reorganise and drop by hand, with and without transactions that wait."""
    shop = SHOP.address_bytes

    def pay(*payers: Wallet) -> None:
        for payer in payers:
            chains.transfer(payer, shop, 7)
        chains.both_are_in_the_same_state()

    chains.begin()
    pay(ALICE, SHOP, ALICE)
    chains.set_automine(False)
    chains.snapshot()
    for seconds in (0.5, 60):
        pay(ALICE, MALLORY, ALICE, SHOP)
        chains.snapshot()
        chains.pass_time(seconds)
        chains.mine(3)
        pay(SHOP, ALICE)
        for depth, drop in ((1, False), (2, True), (2, False)):
            chains.reorg(depth, drop)
            pay(ALICE)
        chains.drop()
        pay(ALICE, SHOP)
    for snapshot in chains.within_reach()[::-1]:
        chains.go_back(snapshot)
        chains.both_are_in_the_same_state()
        chains.mine(1)
        pay()
    chains.set_automine(True)
    pay(ALICE)
    chains.compare_logs(0)


VALID = "high s", "another token", "opens this second", "ends this second", "used"
"""What may be settled: Permit2 takes either `s`, and any token. A nonce may be used in vain."""
MUST_FAIL = (
    *(*FORGERIES, "the other type", "another nonce", "ended a second ago"),
    *(f"{fault}, in a message" for fault in TAKING if fault not in VALID),
)


@pytest.mark.timeout(at_length(600, 3600))
@pytest.mark.clause("5/nonce-once", "5/window", "5/signature-proves", "5/exact-amount")
@pytest.mark.parametrize(
    "runs",
    [1, pytest.param(at_length(ENOUGH_RUNS, 250), marks=pytest.mark.thorough)],
)
def test_the_ledger_agrees_with_the_evm(
    circle_town: Town,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    runs: int,
) -> None:
    monkeypatch.setattr(BothChains, "town", circle_town, raising=False)
    happened.clear()
    walk_through(BothChains(), whole=runs > 1)
    settle_by_permit2(BothChains())
    control(BothChains())
    campaign = settings(
        max_examples=runs,
        stateful_step_count=50 if runs > 1 else 10,
        suppress_health_check=list(HealthCheck),
        derandomize=runs <= ENOUGH_RUNS,
        database=None,
    )
    run_state_machine_as_test(BothChains, settings=campaign)
    run_state_machine_as_test(ByPermit2, settings=campaign)
    operations = sum(n for name, n in happened.items() if not name.startswith(("for ", "with ")))
    record_property("told", f"{operations} operations on ledger and EVM, and no disagreement")
    print(*(f"{count:6} {name}" for name, count in sorted(happened.items())), sep="\n")
    assert operations >= OPERATIONS_A_RUN * runs
    assert [fault for fault in MUST_FAIL if happened[f"with {fault}: done"]] == []
    assert not happened["for OTHER"], "each refusal has a cause"
    settled = [name for name in happened if name.startswith("settle") and name.endswith("done")]
    assert len(settled) >= 6, "by both proxies, without, with and despite a permit"
