"""What a refusal says: both values, and of a signature the domain that was signed by mistake."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.protocol.test_rules import AUTH, GOOD, KEY, PAYMENT, paying, signed_elsewhere
from tests.strategies import domain_data
from x402sim.protocol.crypto import checksum
from x402sim.protocol.differences import difference
from x402sim.protocol.eip3009 import Domain
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, TESTNET
from x402sim.protocol.rules import InvalidReason

OURS = TESTNET.domain


def difference_to(domain: Domain) -> str:
    """What is said of a signature in this domain."""
    return difference(
        InvalidReason.SIGNATURE, paying(signature=signed_elsewhere(AUTH, domain, KEY))
    )


ELSEWHERE = {name: getattr(BASE_SEPOLIA.domain, name) for name in Domain.__struct_fields__}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "USD Coin"},
        {"version": "2"},
        {"name": "USD Coin", "version": "2"},
        {"version": "2", "verifying_contract": BASE_SEPOLIA.asset},
        {"chain_id": 1},
        {"verifying_contract": MAINNET.asset},
        ELSEWHERE,
    ],
)
def test_a_domain_that_wallets_sign_by_mistake_is_named(changes: dict[str, Any]) -> None:
    signed = replace(OURS, **changes)
    pairs = zip(shown(OURS).items(), shown(signed).values(), strict=True)
    says = [f"{name}: wanted {ours}, got {got}" for (name, ours), got in pairs if ours != got]
    assert difference_to(signed) == f"signed in another domain: {', '.join(says)}"


def shown(domain: Domain) -> dict[str, Any]:
    return domain_data(domain) | {"verifyingContract": checksum(domain.verifying_contract)}


def test_any_other_signature_is_told_with_its_signer_and_the_domain_that_was_wanted() -> None:
    said = difference_to(replace(OURS, name="Nobody's guess"))
    assert said.startswith(f"signer: wanted {checksum(AUTH.from_)}, got 0x")
    assert said.endswith(
        f", in the domain name {OURS.name}, version 1, chainId 338, "
        f"verifyingContract {checksum(TESTNET.asset)}"
    )


def test_a_signature_of_a_wrong_form_says_which() -> None:
    case = paying(signature=PAYMENT.signature[:64] + b"\0")
    assert difference(InvalidReason.SIGNATURE, case) == "ECRecover: invalid signature 'v' value"
    assert GOOD.is_signed_by_payer()
