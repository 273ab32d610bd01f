"""A file of networks: contents, refusals, and commands."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from x402sim import MAINNET, TESTNET, LocalServer, Network
from x402sim.cli import app
from x402sim.protocol.networks import choose_network, known_networks

ROW = """
[[network]]
name = "my-net"
chain_id = 4711
asset = "0xabababababababababababababababababababab"
token_name = "My Dollar"
token_symbol = "MYD"
token_version = "3"
decimals = 18
"""
OWN = Network("my-net", 4711, b"\xab" * 20, "My Dollar", "MYD", "3", 18)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "networks.toml"
    path.write_text(ROW)
    return path


def test_a_row_is_a_network(file: Path) -> None:
    assert known_networks(file)["my-net"] == OWN == choose_network(None, file)
    assert OWN.caip2 == "eip155:4711"
    assert choose_network("cronos-mainnet", file) == MAINNET
    assert choose_network(None, None) == TESTNET
    assert known_networks(file)["my-net"].base_fee_wei == 10**9
    file.write_text(ROW + "base_fee_gwei = 0.25")
    assert choose_network(None, file).base_fee_wei == 25 * 10**7


def test_of_several_networks_one_is_chosen(file: Path) -> None:
    file.write_text(ROW + ROW.replace("my-net", "other"))
    assert choose_network("other", file).name == "other"
    with pytest.raises(ValueError, match="has several networks: choose one with --network"):
        choose_network(None, file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("my-net", "cronos-testnet"), "'cronos-testnet' is built in"),
        (("my-net", "My Net"), r"matching regex.*name"),
        (("4711", "0"), r">= 1.*chain_id"),
        (("4711", '"4711"'), r"Expected `int`, got `str`.*chain_id"),
        (("0xab", "0xa"), "'my-net': asset: "),
        (("decimals = 18", ""), "missing required field `decimals`"),
        (("decimals", "decimal"), "`decimal`"),
        (("18", "-1"), r">= 0.*decimals"),
        (("My Dollar", ""), "token_name"),
        (("decimals = 18", "decimals = 18\nbase_fee_gwei = 0"), r">= 1e-09.*base_fee_gwei"),
        (("[[network]]", "[network]"), "Expected `array`"),
        ((ROW, ""), "missing required field `network`"),
        ((ROW, ROW + ROW), "'my-net' is twice in the file"),
        ((ROW, ROW + "[[networks]]"), "unknown field `networks`"),
        (("decimals = 18", "decimals ="), "networks.toml: "),
    ],
)
def test_a_bad_row_is_refused_and_named(file: Path, change: tuple[str, str], said: str) -> None:
    file.write_text(ROW.replace(*change))
    with pytest.raises(ValueError, match=said) as refused:
        choose_network(None, file)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    "deep",
    ["x = " + "[" * 3_000 + "]" * 3_000, "x = " + "{a=" * 3_000 + "1" + "}" * 3_000,
     "a." * 3_000 + "a = 1", "[" + "a." * 3_000 + "a]"],
    ids=["lists", "tables", "dotted key", "dotted table"],
)  # fmt: skip
def test_a_file_that_is_nested_too_deeply_is_refused(file: Path, deep: str) -> None:
    file.write_text(deep)
    with pytest.raises(ValueError, match="it is nested too deeply"):
        choose_network(None, file)


def test_run_plays_on_a_network_and_says_how_to_repeat_it(file: Path) -> None:
    for given in (["--network-file", str(file), "--json"], ["--network", "base-sepolia"]):
        done = CliRunner().invoke(app, ["run", "replay", *given])
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["run", "replay", "--network", "bas"])
    assert (done.exit_code, "base-sepolia" in done.stderr) == (2, True)


def test_the_suite_pays_with_no_key_in_tokens_that_its_budget_does_not_count(file: Path) -> None:
    """A budget of 2.00 is another amount in a token of 2 decimals: nothing is signed."""
    file.write_text(ROW.replace("decimals = 18", "decimals = 2").replace("4711", "31337"))
    with LocalServer(network=choose_network(None, file)) as server:
        key = server.wallets[0].private_key
        named = ["--network-file", str(file), "--only", "1/sign-settle-repeat"]
        judged = ["conformance", server.url, *named]
        done = CliRunner().invoke(app, judged, env={"X402SIM_PAYER_KEY": key})
        assert server.info.accounts[0].balance == "100000"
    assert done.exit_code == 2, done.output
    assert "has 2 decimals, and --budget counts in tokens of 6" in done.output
