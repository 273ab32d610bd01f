"""The token: the order and the texts of its refusals, and what an accepted call does."""

from dataclasses import asdict, dataclass, replace

import pytest
from eth_account import Account
from eth_utils import keccak

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NOW_S,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    TOKEN,
    LedgerDriver,
    authorization,
    cancel_call,
    nonce,
    payment,
    signature_of,
    transfer_call,
)
from tests.strategies import CURVE_ORDER
from x402sim.chain.ledger.token_rules import CANCEL, RECEIVE, TRANSFER, TokenRules
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, checksum
from x402sim.protocol.networks import MAINNET, TESTNET
from x402sim.protocol.rules import without

ZERO_TOPIC = bytes(32)
USED = "FiatTokenV2: authorization is used or canceled"
EARLY = "FiatTokenV2: authorization is not yet valid"
LATE = "FiatTokenV2: authorization is expired"
FORGED = "FiatTokenV2: invalid signature"
SHORT = "ERC20: transfer amount exceeds balance"
BLACKLISTED = "Blacklistable: account is blacklisted"

# --- the order of the checks ---------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """A call that would go through, unless something about it is changed."""

    kind: str = "transfer"
    packed: bool = False
    paused: bool = False
    payer_blacklisted: bool = False
    payee_blacklisted: bool = False
    used: bool = False
    caller: Wallet | None = None
    signer: Wallet = ALICE
    to: Address = SHOP.address_bytes
    value: int = 10_000
    valid_after: int = NOW_S - 60
    valid_before: int = NOW_S + 300

    def calldata(self) -> bytes:
        if self.kind == "cancel":
            return cancel_call(nonce("first"), by=self.signer, packed=self.packed)
        receive = self.kind == "receive"
        auth = authorization(
            to=self.to,
            value=self.value,
            valid_after=self.valid_after,
            valid_before=self.valid_before,
        )
        signature = signature_of(auth, by=self.signer, receive=receive)
        return transfer_call(auth, signature, receive=receive, packed=self.packed)

    def run(self, rules: TokenRules | None = None) -> str | None:
        """Return the token's refusal, None if the call took effect."""
        driver = LedgerDriver(rules=rules)
        prepared = [(self.used, RELAYER, cancel_call(nonce("first")))]
        for on, account in (
            (self.payer_blacklisted, ALICE.address_bytes),
            (self.payee_blacklisted, self.to),
        ):
            prepared.append((on, OWNER, abi.calldata(abi.BLACKLIST, account)))
        prepared.append((self.paused, OWNER, abi.PAUSE))
        for wanted, sender, data in prepared:
            assert not wanted or driver.refusal(data, sender) is None
        caller = self.caller or (SHOP if self.kind == "receive" else RELAYER)
        return driver.refusal(self.calldata(), caller)


@dataclass(frozen=True)
class Fault:
    """One thing wrong: the row that sees it, its text, and the change that makes it."""

    clause: str
    text: str
    change: dict


PAUSED = Fault("token/not-paused", "Pausable: paused", {"paused": True})
PAYER = Fault("token/payer-not-blacklisted", BLACKLISTED, {"payer_blacklisted": True})
PAYEE = Fault("token/payee-not-blacklisted", BLACKLISTED, {"payee_blacklisted": True})
CALLER = Fault("token/payee-calls", "FiatTokenV2: caller must be the payee", {"caller": RELAYER})
OPENS = Fault("5/window-opens", EARLY, {"valid_after": NOW_S})
CLOSES = Fault("5/window-closes", LATE, {"valid_before": NOW_S})
NONCE = Fault("5/nonce-once", USED, {"used": True})
SIGNATURE = Fault("5/signature-proves", FORGED, {"signer": MALLORY})
ROWS = {
    "transfer": [PAUSED, PAYER, PAYEE, OPENS, CLOSES, NONCE, SIGNATURE],
    "receive": [PAUSED, PAYER, PAYEE, CALLER, OPENS, CLOSES, NONCE, SIGNATURE],
    "cancel": [PAUSED, NONCE, SIGNATURE],
}
TABLES = {"transfer": TRANSFER, "receive": RECEIVE, "cancel": CANCEL}
TO_ZERO = Fault("", "ERC20: transfer to the zero address", {"to": ZERO_ADDRESS})
BALANCE = Fault("", SHORT, {"value": START_BASE + 1})
BEHIND_THE_TABLE = {"transfer": [TO_ZERO, BALANCE], "receive": [BALANCE], "cancel": []}
MARKS = {
    "5/window-opens": "5/window",
    "5/window-closes": "5/window",
    "5/nonce-once": "5/nonce-once",
    "5/signature-proves": "5/signature-proves",
}


def cases(faults_of):
    """Return one parameter per kind of call and fault, marked with the fault's clause."""
    return [
        pytest.param(
            kind,
            number,
            id=f"{kind}-{fault.clause or fault.text}",
            marks=[pytest.mark.clause(MARKS[fault.clause])] if fault.clause in MARKS else [],
        )
        for kind in TABLES
        for number, fault in enumerate(faults_of(kind))
    ]


@pytest.mark.parametrize("packed", [False, True], ids=["vrs", "bytes"])
@pytest.mark.parametrize(("kind", "number"), cases(lambda k: ROWS[k] + BEHIND_THE_TABLE[k]))
def test_of_several_faults_the_first_in_order_is_reported(kind, number, packed):
    faults = (ROWS[kind] + BEHIND_THE_TABLE[kind])[number:]
    changes = {name: value for fault in faults for name, value in fault.change.items()}
    assert Attempt(kind=kind, packed=packed, **changes).run() == faults[0].text


@pytest.mark.parametrize("kind", TABLES)
def test_every_row_has_a_case_that_breaks_it(kind):
    assert [rule.clause for rule in TABLES[kind]] == [fault.clause for fault in ROWS[kind]]


@pytest.mark.parametrize(("kind", "number"), cases(ROWS.get))
def test_every_row_is_needed(kind, number):
    fault = ROWS[kind][number]
    attempt = Attempt(kind=kind, **fault.change)
    assert attempt.run() == fault.text
    assert attempt.run(TokenRules(**{kind: without(TABLES[kind], fault.clause)})) is None


@pytest.mark.parametrize("packed", [False, True], ids=["vrs", "bytes"])
@pytest.mark.parametrize("kind", TABLES)
def test_without_a_fault_it_goes_through(kind, packed):
    assert Attempt(kind=kind, packed=packed).run() is None


# --- the window ----------------------------------------------------------------------


@pytest.mark.clause("5/window")
@pytest.mark.parametrize("kind", ["transfer", "receive"])
@pytest.mark.parametrize(
    ("at_s", "text"),
    [
        (NOW_S + 99, EARLY),
        (NOW_S + 100, EARLY),
        (NOW_S + 101, None),
        (NOW_S + 199, None),
        (NOW_S + 200, LATE),
        (NOW_S + 201, LATE),
    ],
)
def test_both_edges_are_outside_the_window(kind, at_s, text):
    driver = LedgerDriver()
    auth = authorization(valid_after=NOW_S + 100, valid_before=NOW_S + 200)
    receive = kind == "receive"
    data = transfer_call(auth, signature_of(auth, receive=receive), receive=receive)
    driver.now[0] = at_s + 0.9
    assert driver.refusal(data, SHOP) == text


def test_a_cancellation_has_no_window():
    driver = LedgerDriver()
    driver.now[0] += 10**9
    assert driver.refusal(cancel_call(nonce("first"))) is None


# --- the nonce -----------------------------------------------------------------------


def pay(receive: bool, name: object = "first"):
    """Return the calldata of one payment, by transfer- or receiveWithAuthorization."""
    auth = authorization(nonce=nonce(name))
    return transfer_call(auth, signature_of(auth, receive=receive), receive=receive)


@pytest.mark.clause("5/nonce-once")
@pytest.mark.parametrize(
    "first",
    [pay(False), pay(True), cancel_call(nonce("first"))],
    ids=["used", "received", "cancelled"],
)
@pytest.mark.parametrize(
    "second", [pay(False), pay(True), cancel_call(nonce("first"))], ids=["use", "receive", "cancel"]
)
def test_transfers_receipts_and_cancellations_share_one_nonce(first, second):
    driver = LedgerDriver()
    assert not driver.is_used(ALICE, nonce("first"))
    assert driver.refusal(first, SHOP) is None
    assert driver.is_used(ALICE, nonce("first"))
    before = driver.balance(ALICE)
    assert driver.refusal(second, SHOP) == USED
    assert driver.balance(ALICE) == before


def test_a_nonce_belongs_to_its_payer():
    driver = LedgerDriver()
    driver.send(abi.mint(MALLORY.address_bytes, 10_000), OWNER)
    assert driver.refusal(payment()) is None
    auth = authorization(from_=MALLORY.address_bytes)
    assert driver.refusal(transfer_call(auth, signature_of(auth, by=MALLORY))) is None


def test_a_revert_at_the_transfer_burns_no_nonce_and_leaves_no_trace():
    driver = LedgerDriver()
    data = payment(value=START_BASE + 1)
    receipt = driver.send(data)
    assert (receipt.revert_reason, receipt.logs) == (SHORT, ())
    assert not driver.is_used(ALICE, nonce("first"))
    assert (driver.balance(ALICE), driver.balance(SHOP)) == (START_BASE, 0)
    driver.send(abi.mint(ALICE.address_bytes, 1), OWNER)
    assert driver.refusal(data) is None
    assert (driver.balance(ALICE), driver.balance(SHOP)) == (0, START_BASE + 1)


# --- the signature -------------------------------------------------------------------

GOOD = signature_of(authorization())
HIGH_S = (CURVE_ORDER - int.from_bytes(GOOD[32:64])).to_bytes(32)
MALLEATED = GOOD[:32] + HIGH_S + bytes([55 - GOOD[64]])
NO_KEY = b"\xff" * 32 + GOOD[32:]


@pytest.mark.clause("5/signature-proves")
@pytest.mark.parametrize(
    ("signature", "text"),
    [
        pytest.param(b"", "ECRecover: invalid signature length", id="0 bytes"),
        pytest.param(GOOD[:64], "ECRecover: invalid signature length", id="64 bytes"),
        pytest.param(GOOD + b"\0", "ECRecover: invalid signature length", id="66 bytes"),
        pytest.param(MALLEATED, "ECRecover: invalid signature 's' value", id="high s"),
        pytest.param(GOOD[:64] + b"\x00", "ECRecover: invalid signature 'v' value", id="v 0"),
        pytest.param(GOOD[:64] + b"\x01", "ECRecover: invalid signature 'v' value", id="v 1"),
        pytest.param(GOOD[:64] + b"\x1d", "ECRecover: invalid signature 'v' value", id="v 29"),
        pytest.param(NO_KEY, "ECRecover: invalid signature", id="no key"),
        pytest.param(GOOD[:64] + bytes([55 - GOOD[64]]), FORGED, id="the other v"),
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["vrs", "bytes"])
def test_a_broken_signature_is_refused_as_ecrecover_refuses_it(signature, text, packed):
    data = transfer_call(authorization(), signature, packed=packed or len(signature) != 65)
    driver = LedgerDriver()
    assert driver.refusal(data) == text
    assert not driver.is_used(ALICE, nonce("first"))
    assert driver.refusal(transfer_call(authorization(), GOOD)) is None


@pytest.mark.clause("5/signature-proves")
@pytest.mark.parametrize(
    "change",
    [
        {"from_": MALLORY.address_bytes},
        {"to": MALLORY.address_bytes},
        {"value": 10_001},
        {"valid_after": NOW_S - 61},
        {"valid_before": NOW_S + 301},
        {"nonce": nonce("second")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_signature_covers_every_field(change):
    driver = LedgerDriver()
    driver.send(abi.mint(MALLORY.address_bytes, START_BASE), OWNER)
    assert driver.refusal(transfer_call(authorization(**change), GOOD)) == FORGED


@pytest.mark.clause("5/signature-proves")
@pytest.mark.parametrize(
    "change",
    [
        {"name": "USDC"},
        {"version": "2"},
        {"chain_id": 25},
        {"verifying_contract": MAINNET.asset},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_signature_is_for_one_token_on_one_chain(change):
    domain = replace(TESTNET.domain, **change)
    driver = LedgerDriver()
    data = transfer_call(authorization(), signature_of(authorization(), domain=domain))
    assert driver.refusal(data) == FORGED
    assert driver.refusal(cancel_call(nonce("first"), domain=domain)) == FORGED


@pytest.mark.clause("5/signature-proves")
@pytest.mark.parametrize("receive", [False, True])
def test_transfer_and_receive_signatures_are_not_interchangeable(receive):
    signature = signature_of(authorization(), receive=not receive)
    data = transfer_call(authorization(), signature, receive=receive)
    assert LedgerDriver().refusal(data, SHOP) == FORGED


def test_a_signature_made_by_eth_account_moves_the_money():
    auth = authorization()
    kinds = {"from": "address", "to": "address", "value": "uint256", "validAfter": "uint256"}
    kinds |= {"validBefore": "uint256", "nonce": "bytes32"}
    domain = {"name": "Bridged USDC (Stargate)", "version": "1", "chainId": 338}
    signed = Account.sign_typed_data(
        ALICE.private_key,
        domain | {"verifyingContract": checksum(TOKEN)},
        {"TransferWithAuthorization": [{"name": n, "type": t} for n, t in kinds.items()]},
        dict(zip(kinds, asdict(auth).values(), strict=True))
        | {"from": checksum(auth.from_), "to": checksum(auth.to)},
    )
    assert LedgerDriver().refusal(transfer_call(auth, bytes(signed.signature))) is None


# --- what an accepted call does ------------------------------------------------------


def emitted(receipt):
    """Return the receipt's logs as (topics, data), having checked where they come from."""
    assert [log.address for log in receipt.logs] == [TOKEN] * len(receipt.logs)
    return [(log.topics, log.data) for log in receipt.logs]


def topics(event: str, *indexed: bytes):
    return (keccak(text=event), *(value.rjust(32, b"\0") for value in indexed))


ALICE_, SHOP_, BOB_ = ALICE.address_bytes, SHOP.address_bytes, MALLORY.address_bytes


@pytest.mark.clause("5/exact-amount")
@pytest.mark.parametrize("receive", [False, True])
def test_a_transfer_moves_exactly_the_amount_and_says_so(receive):
    driver = LedgerDriver()
    receipt = driver.send(pay(receive), SHOP)
    assert emitted(receipt) == [
        (topics("AuthorizationUsed(address,bytes32)", ALICE_, nonce("first")), b""),
        (topics("Transfer(address,address,uint256)", ALICE_, SHOP_), (10_000).to_bytes(32)),
    ]
    assert (driver.balance(ALICE), driver.balance(SHOP)) == (START_BASE - 10_000, 10_000)


def test_a_cancellation_moves_nothing_and_says_so():
    driver = LedgerDriver()
    receipt = driver.send(cancel_call(nonce("first")))
    expected = topics("AuthorizationCanceled(address,bytes32)", ALICE_, nonce("first"))
    assert emitted(receipt) == [(expected, b"")]
    assert driver.balance(ALICE) == START_BASE


def test_a_minter_uses_up_its_allowance_and_can_burn_what_it_has():
    driver = LedgerDriver()
    mallory = MALLORY.address_bytes
    configured = driver.send(abi.calldata(abi.CONFIGURE_MINTER, mallory, 10), OWNER)
    expected = topics("MinterConfigured(address,uint256)", mallory)
    assert emitted(configured) == [(expected, (10).to_bytes(32))]
    assert driver.view(abi.calldata(abi.IS_MINTER, mallory)) == abi.word(1)
    assert driver.refusal(abi.mint(mallory, 7), MALLORY) is None
    assert driver.view(abi.calldata(abi.MINTER_ALLOWANCE, mallory)) == abi.word(3)
    too_much = driver.refusal(abi.mint(mallory, 4), MALLORY)
    assert too_much == "FiatToken: mint amount exceeds minterAllowance"
    burnt = driver.send(abi.calldata(abi.BURN, 5), MALLORY)
    assert emitted(burnt) == [
        (topics("Burn(address,uint256)", mallory), (5).to_bytes(32)),
        (topics("Transfer(address,address,uint256)", mallory, ZERO_TOPIC), (5).to_bytes(32)),
    ]
    assert (driver.balance(MALLORY), driver.state.supply) == (2, START_BASE + 2)
    short = driver.refusal(abi.calldata(abi.BURN, 3), MALLORY)
    assert short == "FiatToken: burn amount exceeds balance"
    assert driver.refusal(abi.calldata(abi.REMOVE_MINTER, mallory), OWNER) is None
    assert driver.refusal(abi.mint(mallory, 1), MALLORY) == "FiatToken: caller is not a minter"
    assert driver.view(abi.calldata(abi.IS_MINTER, mallory)) == abi.word(0)


def test_the_tokens_own_address_takes_no_tokens():
    driver = LedgerDriver()
    assert driver.view(abi.calldata(abi.IS_BLACKLISTED, TOKEN)) == abi.word(1)
    assert driver.refusal(payment(to=TOKEN)) == BLACKLISTED
    assert driver.refusal(abi.transfer(TOKEN, 1), ALICE) == BLACKLISTED
    assert driver.refusal(abi.mint(TOKEN, 1), OWNER) == BLACKLISTED


def test_a_value_of_zero_is_legal():
    driver = LedgerDriver()
    receipt = driver.send(payment(value=0))
    assert receipt.succeeded
    assert receipt.logs[1].data == bytes(32)
    assert driver.is_used(ALICE, nonce("first"))
    assert (driver.balance(ALICE), driver.balance(SHOP)) == (START_BASE, 0)


def test_from_the_zero_address_dies_at_the_signature():
    auth = authorization(from_=ZERO_ADDRESS, value=0)
    assert LedgerDriver().refusal(transfer_call(auth, signature_of(auth))) == FORGED
    no_rules = TokenRules(transfer=without(TRANSFER, "5/signature-proves"))
    text = "ERC20: transfer from the zero address"
    assert LedgerDriver(rules=no_rules).refusal(transfer_call(auth, GOOD)) == text


# --- pause, blacklist, owner ---------------------------------------------------------


def test_a_cancellation_works_while_its_author_is_blacklisted_but_not_while_paused():
    driver = LedgerDriver()
    driver.send(abi.calldata(abi.BLACKLIST, ALICE_), OWNER)
    assert driver.refusal(cancel_call(nonce("first"))) is None
    driver.send(abi.PAUSE, OWNER)
    assert driver.refusal(cancel_call(nonce("second"))) == "Pausable: paused"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (abi.mint(BOB_, 1), "FiatToken: caller is not a minter"),
        (abi.PAUSE, "Pausable: caller is not the pauser"),
        (abi.UNPAUSE, "Pausable: caller is not the pauser"),
        (abi.calldata(abi.BLACKLIST, ALICE_), "Blacklistable: caller is not the blacklister"),
        (abi.calldata(abi.UNBLACKLIST, ALICE_), "Blacklistable: caller is not the blacklister"),
        (abi.calldata(abi.BURN, 1), "FiatToken: caller is not a minter"),
        (
            abi.calldata(abi.CONFIGURE_MINTER, ALICE_, 1),
            "FiatToken: caller is not the masterMinter",
        ),
        (abi.calldata(abi.REMOVE_MINTER, ALICE_), "FiatToken: caller is not the masterMinter"),
    ],
    ids=[
        *("mint", "pause", "unpause", "blacklist", "unBlacklist"),
        *("burn", "configureMinter", "removeMinter"),
    ],
)
def test_only_the_owner_governs_the_token(data, text):
    driver = LedgerDriver()
    before = driver.state.supply
    assert driver.refusal(data, MALLORY) == text
    assert driver.state.supply == before
    assert driver.refusal(payment()) is None


# --- the views -----------------------------------------------------------------------


def test_a_view_changes_nothing():
    driver = LedgerDriver()
    mark, height = driver.state.mark(), driver.state.head.number
    driver.view(payment())
    assert (driver.state.mark(), driver.state.head.number) == (mark, height)
    assert (driver.balance(SHOP), driver.is_used(ALICE, nonce("first"))) == (0, False)
