"""The funded accounts of `serve`: those everybody knows, those of a phrase, and those of a seed."""

from pathlib import Path

import pytest
from eth_account import Account
from eth_account.messages import encode_defunct

from tests.evm import find
from tests.serve.hosted import hosted
from x402sim import LocalServer
from x402sim.chain.base import ChainError
from x402sim.protocol.phrase import KNOWN, keys_of
from x402sim.world.chains import Anvil

FIRST = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
LAST = "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720"
OTHER = "legal winner thank year wave sausage worth useful legal winner thank yellow"


@pytest.mark.parametrize("words", [KNOWN, OTHER, f"  {OTHER.replace(' ', '  ')} "])
def test_the_keys_of_a_phrase_are_those_of_eth_account(words: str) -> None:
    Account.enable_unaudited_hdwallet_features()
    text = " ".join(words.split())
    paths = [f"m/44'/60'/0'/0/{n}" for n in range(12)]
    wanted = [bytes(Account.from_mnemonic(text, account_path=path).key) for path in paths]
    assert keys_of(words, 12) == wanted


def test_a_server_funds_the_accounts_that_everybody_knows() -> None:
    with hosted() as server:
        named = [account["address"] for account in server.ready["accounts"]]
        assert (named[0], named[9], len(named)) == (FIRST, LAST, 10)
        assert server.rpc("eth_accounts") == [address.lower() for address in named]
        server.account(9).paid()


def test_a_phrase_a_seed_and_a_number_may_be_given() -> None:
    with hosted(mnemonic=OTHER, accounts=3) as server:
        accounts = server.ready["accounts"]
        assert [a["privateKey"] for a in accounts] == ["0x" + k.hex() for k in keys_of(OTHER, 3)]
        server.account(2).paid()
    with LocalServer(seed=0, accounts=2) as local:
        assert len(local.wallets) == 2
        assert local.wallets[0].address != FIRST


def addresses(file: Path, **more: str | int) -> list[str]:
    with LocalServer(file=file, **more) as server:  # type: ignore[arg-type]
        return [wallet.address for wallet in server.wallets]


def test_a_file_of_other_accounts_is_refused(tmp_path: Path) -> None:
    known, seeded = tmp_path / "known.db", tmp_path / "seeded.db"
    assert addresses(known)[0] == addresses(known)[0] == FIRST
    for more in ({"mnemonic": OTHER}, {"accounts": 3}, {"seed": 0}):
        with pytest.raises(ChainError, match="made with other accounts"):
            addresses(known, **more)
    assert addresses(seeded, seed=3) == addresses(seeded, seed=3)


@pytest.mark.thorough
def test_anvil_names_the_accounts_and_signs_for_them() -> None:
    with hosted(chain=Anvil(program=find.anvil()), accounts=3) as server:
        named = [account["address"].lower() for account in server.ready["accounts"]]
        assert server.rpc("eth_accounts") == named
        assert named[0] == FIRST.lower()
        signature = server.rpc("personal_sign", "0x1234", FIRST)
        message = encode_defunct(b"\x12\x34")
        assert Account.recover_message(message, signature=signature) == FIRST
