"""The token: the order and the texts of its refusals, and that each rule is needed.

What it does otherwise is compared with Circle's own contract, in `tests/evm`.
"""

from dataclasses import dataclass

import pytest

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NOW_S,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    LedgerDriver,
    authorization,
    cancel_call,
    nonce,
    payment,
    signature_of,
    transfer_call,
)
from x402sim.chain.ledger.token_rules import CANCEL, RECEIVE, TRANSFER, TokenRules
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address
from x402sim.protocol.rules import without

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


# --- one call after another ----------------------------------------------------------


def test_a_nonce_belongs_to_its_payer():
    driver = LedgerDriver()
    driver.send(abi.mint(MALLORY.address_bytes, 10_000), OWNER)
    assert driver.refusal(payment()) is None
    auth = authorization(from_=MALLORY.address_bytes)
    assert driver.refusal(transfer_call(auth, signature_of(auth, by=MALLORY))) is None
