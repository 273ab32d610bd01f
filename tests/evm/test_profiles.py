"""Circle's token and OpenZeppelin's: where they differ, one by one, and that they do not otherwise.

Each difference is shown on three chains: the ledger with Circle's profile, the ledger with
OpenZeppelin's, and OpenZeppelin's contract itself on anvil.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from tests.evm.helpers import ChainDriver, Town
from tests.evm.test_equality import (
    ACCOUNTS,
    CANCELLING,
    PLAYERS,
    SPENDING,
    WINDOWS_S,
    signed,
    some,
)
from x402sim.chain.ledger.profiles import BLOCK_NUMBERS, CIRCLE, OPENZEPPELIN
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, checksum
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    TRANSFER_TYPEHASH,
    cancel_digest,
    transfer_digest,
)

ALICE_, SHOP_, OWNER_ = (checksum(w.address_bytes) for w in (ALICE, SHOP, OWNER))
FIRST = f"0x{nonce('first').hex()}"
WINDOW = NOW_S - 60, NOW_S + 300
GOOD = signature_of(authorization())
S = GOOD[32:64]
HIGH_S = (
    0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141 - int.from_bytes(S)
).to_bytes(32)


@pytest.fixture
def three(town: Town) -> list[ChainDriver]:
    ledgers = [town.driver(town.ledger(name)) for name in ("circle", "openzeppelin")]
    return [*ledgers, town.driver(town.anvil)]


def refusals(three: list[ChainDriver], data: bytes, sender: Wallet = RELAYER) -> list[str | None]:
    """Send a call to all; return what Circle's and what OpenZeppelin's token say."""
    circle, ours, real = (driver.refusal(data, sender) for driver in three)
    assert ours == real
    return [circle, real]


# --- the words -----------------------------------------------------------------------

USED = "FiatTokenV2: authorization is used or canceled"
EARLY = "FiatTokenV2: authorization is not yet valid"
LATE = "FiatTokenV2: authorization is expired"
FORGED = "FiatTokenV2: invalid signature"


def time_error(opens: int, closes: int) -> str:
    return f"ERC3009InvalidAuthorizationTime({opens}, {closes})"


def pay(signature: bytes | None = None, *, by: Wallet = ALICE, receive: bool = False, **changes):
    auth = authorization(**changes)
    signature = signature or signature_of(auth, by=by, receive=receive)
    return transfer_call(auth, signature, receive=receive)


WORDS: dict[str, tuple[bytes, Wallet, str, str]] = {
    "early": (pay(valid_after=NOW_S), RELAYER, EARLY, time_error(NOW_S, NOW_S + 300)),
    "late": (pay(valid_before=NOW_S), RELAYER, LATE, time_error(NOW_S - 60, NOW_S)),
    "forged": (pay(by=MALLORY), RELAYER, FORGED, "ERC3009InvalidSignature()"),
    "high s": (
        pay(GOOD[:32] + HIGH_S + bytes([55 - GOOD[64]])),
        RELAYER,
        "ECRecover: invalid signature 's' value",
        f"ECDSAInvalidSignatureS(0x{HIGH_S.hex()})",
    ),
    "v of 0": (
        pay(GOOD[:64] + b"\x00"),
        RELAYER,
        "ECRecover: invalid signature 'v' value",
        "ECDSAInvalidSignature()",
    ),
    "no key": (
        pay(b"\xff" * 32 + GOOD[32:]),
        RELAYER,
        "ECRecover: invalid signature",
        "ECDSAInvalidSignature()",
    ),
    "a stranger receives": (
        pay(receive=True),
        RELAYER,
        "FiatTokenV2: caller must be the payee",
        f"ERC20InvalidReceiver({SHOP_})",
    ),
    "short": (
        pay(value=START_BASE + 1),
        RELAYER,
        "ERC20: transfer amount exceeds balance",
        f"ERC20InsufficientBalance({ALICE_}, {START_BASE}, {START_BASE + 1})",
    ),
    "to nobody": (
        pay(to=ZERO_ADDRESS),
        RELAYER,
        "ERC20: transfer to the zero address",
        f"ERC20InvalidReceiver({checksum(ZERO_ADDRESS)})",
    ),
    "from nobody": (
        pay(from_=ZERO_ADDRESS),
        RELAYER,
        FORGED,
        "ERC3009InvalidSignature()",
    ),
    "transfer without enough": (
        abi.transfer(SHOP.address_bytes, 1),
        MALLORY,
        "ERC20: transfer amount exceeds balance",
        f"ERC20InsufficientBalance({checksum(MALLORY.address_bytes)}, 0, 1)",
    ),
    "mint by a stranger": (
        abi.mint(SHOP.address_bytes, 1),
        ALICE,
        "FiatToken: caller is not a minter",
        f"OwnableUnauthorizedAccount({ALICE_})",
    ),
    "mint to nobody": (
        abi.mint(ZERO_ADDRESS, 1),
        OWNER,
        "FiatToken: mint to the zero address",
        f"ERC20InvalidReceiver({checksum(ZERO_ADDRESS)})",
    ),
    "mint more than there can be": (
        abi.mint(SHOP.address_bytes, 2**256 - 1),
        OWNER,
        "SafeMath: addition overflow",
        "Panic(0x11)",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_same_refusal_in_other_words(three: list[ChainDriver], name: str):
    data, sender, circle, openzeppelin = WORDS[name]
    assert refusals(three, data, sender) == [circle, openzeppelin]


@pytest.mark.clause("5/nonce-once")
@pytest.mark.parametrize("first", [pay(), cancel_call(nonce("first"))], ids=["used", "cancelled"])
@pytest.mark.parametrize(
    "second",
    [(pay(), RELAYER), (pay(receive=True), SHOP), (cancel_call(nonce("first")), RELAYER)],
    ids=["pay", "receive", "cancel"],
)
def test_one_word_for_used_and_cancelled_in_each(three: list[ChainDriver], first, second):
    assert refusals(three, first) == [None, None]
    expected = [USED, f"ERC3009UsedAuthorization({ALICE_}, {FIRST})"]
    assert refusals(three, *second) == expected


# --- the order -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "circle", "openzeppelin"),
    [
        ({"valid_after": NOW_S, "by": MALLORY}, EARLY, "ERC3009InvalidSignature()"),
        ({"valid_before": NOW_S, "by": MALLORY}, LATE, "ERC3009InvalidSignature()"),
        ({"valid_before": 0, "valid_after": NOW_S}, EARLY, time_error(NOW_S, 0)),
        (
            {"by": MALLORY, "value": START_BASE + 1},
            FORGED,
            "ERC3009InvalidSignature()",
        ),
    ],
    ids=["early and forged", "late and forged", "early and late", "forged and short"],
)
def test_of_two_faults_each_token_reports_its_own_first(
    three: list[ChainDriver], changes, circle, openzeppelin
):
    assert refusals(three, pay(**changes)) == [circle, openzeppelin]


def test_only_circle_checks_the_nonce_before_the_signature(three: list[ChainDriver]):
    assert refusals(three, pay()) == [None, None]
    assert refusals(three, pay(by=MALLORY)) == [USED, "ERC3009InvalidSignature()"]
    forged = cancel_call(nonce("first"), by=MALLORY)
    assert refusals(three, forged) == [USED, "ERC3009InvalidSignature()"]


def test_only_circle_checks_the_payee_before_the_signature(
    three: list[ChainDriver],
):
    forged = pay(receive=True, by=MALLORY)
    assert refusals(three, forged) == [
        "FiatTokenV2: caller must be the payee",
        "ERC3009InvalidSignature()",
    ]
    late = pay(receive=True, valid_before=NOW_S)
    assert refusals(three, late) == [
        "FiatTokenV2: caller must be the payee",
        f"ERC20InvalidReceiver({SHOP_})",
    ]


# --- what only one of them has -------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("pay", "receive", "cancel", "pause", "unpause", "blacklist", "unblacklist"),
        *("burn", "configureMinter", "removeMinter"),
    ],
)
def test_functions_of_circles_that_openzeppelins_lacks(three: list[ChainDriver], name: str):
    calls = {
        "pay": (transfer_call(authorization(), GOOD, packed=True), RELAYER),
        "receive": (
            transfer_call(
                authorization(),
                signature_of(authorization(), receive=True),
                receive=True,
                packed=True,
            ),
            SHOP,
        ),
        "cancel": (cancel_call(nonce("first"), packed=True), RELAYER),
        "pause": (abi.PAUSE, OWNER),
        "unpause": (abi.UNPAUSE, OWNER),
        "blacklist": (abi.calldata(abi.BLACKLIST, ALICE.address_bytes), OWNER),
        "unblacklist": (abi.calldata(abi.UNBLACKLIST, ALICE.address_bytes), OWNER),
        "burn": (abi.calldata(abi.BURN, 1), OWNER),
        "configureMinter": (abi.calldata(abi.CONFIGURE_MINTER, ALICE.address_bytes, 1), OWNER),
        "removeMinter": (abi.calldata(abi.REMOVE_MINTER, ALICE.address_bytes), OWNER),
    }
    for chain in three if name == "burn" else ():
        chain.send(abi.mint(OWNER.address_bytes, 1), OWNER)
    assert refusals(three, *calls[name]) == [None, ""]


@pytest.mark.parametrize(
    "data",
    [
        abi.PAUSED,
        abi.calldata(abi.IS_BLACKLISTED, ALICE.address_bytes),
        abi.TRANSFER_TYPEHASH,
        abi.RECEIVE_TYPEHASH,
        abi.CANCEL_TYPEHASH,
        abi.MASTER_MINTER,
        abi.PAUSER,
        abi.BLACKLISTER,
        abi.calldata(abi.IS_MINTER, ALICE.address_bytes),
        abi.calldata(abi.MINTER_ALLOWANCE, ALICE.address_bytes),
    ],
    ids=[
        *("paused", "isBlacklisted", "transfer typehash", "receive typehash", "cancel typehash"),
        *("masterMinter", "pauser", "blacklister", "isMinter", "minterAllowance"),
    ],
)
def test_getters_that_openzeppelins_token_lacks(three: list[ChainDriver], data: bytes):
    assert [driver.tried(data) for driver in three] == [None, "", ""]


@pytest.mark.parametrize(
    ("opens", "closes", "expected"),
    [
        (0, 2, [EARLY, None]),
        (1, 3, [EARLY, time_error(1 | BLOCK_NUMBERS, 3 | BLOCK_NUMBERS)]),
        (0, 1, [EARLY, time_error(0 | BLOCK_NUMBERS, 1 | BLOCK_NUMBERS)]),
    ],
    ids=["in block 1", "from block 2", "until block 0"],
)
def test_bit_47_at_both_ends_counts_blocks_at_openzeppelins(three, opens, closes, expected):
    data = pay(valid_after=opens | BLOCK_NUMBERS, valid_before=closes | BLOCK_NUMBERS)
    assert refusals(three, data) == expected


@pytest.mark.parametrize(
    ("opens", "closes", "is_open"),
    [
        (NOW_S - 60, BLOCK_NUMBERS, True),
        (NOW_S - 60, BLOCK_NUMBERS | (NOW_S + 300), True),
        (BLOCK_NUMBERS, NOW_S + 300, False),
        (NOW_S - 60, 2**256 - 1, True),
        (2**255, 2**256 - 1, False),
    ],
)
def test_bit_47_at_one_end_is_far_in_the_future_at_both(three, opens, closes, is_open):
    circle, openzeppelin = refusals(three, pay(valid_after=opens, valid_before=closes))
    assert [circle is None, openzeppelin is None] == [is_open, is_open]


def test_minting_nothing(three: list[ChainDriver]):
    expected = ["FiatToken: mint amount not greater than 0", None]
    assert refusals(three, abi.mint(SHOP.address_bytes, 0), OWNER) == expected


@pytest.mark.parametrize("most", [2**255 - 1, 2**255, 2**256 - 1 - START_BASE])
def test_the_most_tokens_there_can_be(three: list[ChainDriver], most: int):
    """Circle's keeps 255 bits of a balance; the supply may be larger, in several hands."""
    circle, openzeppelin = refusals(three, abi.mint(SHOP.address_bytes, most), OWNER)
    assert circle == (None if most < 2**255 else "FiatTokenV2_2: Balance exceeds (2^255 - 1)")
    assert openzeppelin is None
    assert (
        refusals(three, abi.mint(MALLORY.address_bytes, 2**256 - most), OWNER)[1] == "Panic(0x11)"
    )


def test_only_circles_token_refuses_to_hold_itself(three: list[ChainDriver]):
    blacklisted = "Blacklistable: account is blacklisted"
    assert refusals(three, pay(to=TOKEN)) == [blacklisted, None]
    assert refusals(three, abi.transfer(TOKEN, 1), ALICE) == [blacklisted, None]


# --- and otherwise they do not differ ------------------------------------------------

Attempt = tuple[bytes, Wallet]


@st.composite
def attempts(draw: Callable) -> Attempt:
    """Return a payment, receipt, cancellation or transfer, right or wrong in any way."""
    payer, faults = draw(st.sampled_from([ALICE, ALICE, SHOP])), draw(some(SPENDING))
    account, used = payer.address_bytes, nonce(draw(st.integers(0, 5)))
    to, amount = draw(st.sampled_from(ACCOUNTS[:-1])), draw(st.sampled_from([0, 1, 5000, 10**9]))
    match draw(st.sampled_from(["pay", "receive", "cancel", "transfer"])):
        case "transfer":
            return abi.transfer(to, amount), payer
        case "cancel":
            wrong = faults & set(CANCELLING)
            signature = signed(lambda domain: cancel_digest(account, used, domain), payer, wrong)
            return abi.cancel_authorization(account, used, signature), RELAYER
        case kind:
            opens, closes = next((WINDOWS_S[f] for f in WINDOWS_S if f in faults), (-60, 300))
            auth = authorization(
                from_=account,
                to=to,
                value=amount,
                valid_after=NOW_S + opens,
                valid_before=NOW_S + closes,
                nonce=used,
            )
            is_receive = (kind == "receive") != ("the other type" in faults)
            typehash = RECEIVE_TYPEHASH if is_receive else TRANSFER_TYPEHASH
            signature = signed(
                lambda domain: transfer_digest(auth, domain, typehash), payer, faults
            )
            payee = next((w for w in PLAYERS if w.address_bytes == to), RELAYER)
            caller = RELAYER if "a stranger calls" in faults else payee
            return transfer_call(auth, signature, receive=kind == "receive"), caller


@pytest.mark.parametrize("times", [40, pytest.param(500, marks=pytest.mark.thorough)])
def test_both_profiles_accept_and_refuse_the_same_payments(times: int):
    """On the ledger alone; `test_equality` proves that the second is what an EVM does."""

    @settings(max_examples=times, suppress_health_check=list(HealthCheck))
    @given(st.lists(attempts(), min_size=5, max_size=20))
    def compare(some_attempts: list[Attempt]) -> None:
        circle, openzeppelin = LedgerDriver(rules=CIRCLE), LedgerDriver(rules=OPENZEPPELIN)
        for data, sender in some_attempts:
            ends = [driver.refusal(data, sender) is None for driver in (circle, openzeppelin)]
            assert ends[0] == ends[1]
        assert circle.state.balances == openzeppelin.state.balances
        assert circle.state.authorizations == openzeppelin.state.authorizations

    compare()


def test_a_payment_leaves_the_same_events_at_both(three: list[ChainDriver]):
    for data, sender in ((payment(), RELAYER), (pay(receive=True, nonce=nonce(2)), SHOP)):
        receipts = [driver.send(data, sender) for driver in three]
        told = [[(log.topics, log.data) for log in receipt.logs] for receipt in receipts]
        assert told[0] == told[1] == told[2]
        assert len(told[0]) == 2
