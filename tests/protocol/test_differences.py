"""What a refusal says: both values, and of a signature the domain that was signed by mistake."""

import pytest
from msgspec.structs import replace

from tests.protocol.test_rules import AUTH, GOOD, KEY, PAYMENT, paying, signed_elsewhere
from x402sim.protocol.crypto import checksum
from x402sim.protocol.differences import difference
from x402sim.protocol.eip3009 import Domain
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, TESTNET
from x402sim.protocol.rules import Invalid

OURS = TESTNET.domain


def told(domain: Domain) -> str:
    """What is said of a signature in this domain."""
    return difference(Invalid.SIGNATURE, paying(signature=signed_elsewhere(AUTH, domain, KEY)))


@pytest.mark.parametrize(
    ("domain", "says"),
    [
        (replace(OURS, name="USD Coin"), f"name: wanted {OURS.name}, got USD Coin"),
        (replace(OURS, version="2"), "version: wanted 1, got 2"),
        (
            replace(OURS, name="USD Coin", version="2"),
            f"name: wanted {OURS.name}, got USD Coin, version: wanted 1, got 2",
        ),
        (
            replace(OURS, version="2", verifying_contract=BASE_SEPOLIA.asset),
            f"version: wanted 1, got 2, verifyingContract: wanted {checksum(TESTNET.asset)}, "
            f"got {checksum(BASE_SEPOLIA.asset)}",
        ),
        (replace(OURS, chain_id=1), "chainId: wanted 338, got 1"),
        (
            replace(OURS, verifying_contract=MAINNET.asset),
            f"verifyingContract: wanted {checksum(TESTNET.asset)}, got {checksum(MAINNET.asset)}",
        ),
        (
            BASE_SEPOLIA.domain,
            f"name: wanted {OURS.name}, got USDC, version: wanted 1, got 2, chainId: wanted 338, "
            f"got 84532, verifyingContract: wanted {checksum(TESTNET.asset)}, "
            f"got {checksum(BASE_SEPOLIA.asset)}",
        ),
    ],
)
def test_a_domain_that_wallets_sign_by_mistake_is_named(domain: Domain, says: str) -> None:
    assert told(domain) == f"signed in another domain: {says}"


def test_any_other_signature_is_told_with_its_signer_and_the_domain_that_was_wanted() -> None:
    said = told(replace(OURS, name="Nobody's guess"))
    assert said.startswith(f"signer: wanted {checksum(AUTH.from_)}, got 0x")
    assert said.endswith(
        f", in the domain name {OURS.name}, version 1, chainId 338, "
        f"verifyingContract {checksum(TESTNET.asset)}"
    )


def test_a_value_of_another_case_is_named_if_it_is_the_only_one() -> None:
    case = paying(scheme="Exact")
    assert difference(Invalid.SCHEME, case) == "scheme: wanted exact, got Exact"


def test_a_long_value_is_shortened() -> None:
    case = paying(network="n" * 1_000_000)
    assert difference(Invalid.NETWORK, case) == f"network: wanted {TESTNET.name}, got {'n' * 80}"


def test_a_signature_of_a_wrong_form_says_which() -> None:
    case = paying(signature=PAYMENT.signature[:64] + b"\0")
    assert difference(Invalid.SIGNATURE, case) == "ECRecover: invalid signature 'v' value"
    assert GOOD.is_signed_by_payer()
