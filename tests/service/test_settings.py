"""Section 2.8: the settings, and what the service cannot be asked."""

from pathlib import Path
from typing import Any

import pytest

from tests.rig import ServiceRig, scene
from x402sim import LiveWorld, World
from x402sim.journal import Journal
from x402sim.policies import ServeBeforeSettle, ServicePolicy
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.networks import MAINNET
from x402sim.rng import Rng
from x402sim.service.environment import Environment, read_environment
from x402sim.service.issue import Issuer
from x402sim.service.settings import Settings
from x402sim.serving.serve import open_service

ENV = {
    "PRIVATE_KEY": "0x" + "11" * 32,
    "FACILITATOR_URL": "http://127.0.0.1:4020/facilitator",
    "EXPLORER_URL": "http://127.0.0.1:4020/explorer",
    "RPC_URL": "http://127.0.0.1:4020/rpc",
}


CONNECTED = {"private_key": b"k" * 32, "secret": b"s" * 32} | dict.fromkeys(
    ("facilitator_url", "explorer_url", "rpc_url"), ""
)


@pytest.mark.clause("2.8/settings")
def test_the_settings_come_from_the_environment() -> None:
    setup = read_environment(ENV)
    assert (setup.network.name, setup.settings.final_depth) == ("cronos-testnet", 12)
    assert setup.settings.pending_wait_s == (15, 60)
    assert setup.settings.phase == 0, "its periodic work begins one interval after its start"
    assert read_environment({**ENV, "FINAL_DEPTH": "0"}).settings.final_depth == 0
    assert setup.pay_to == setup.wallet
    assert setup.wallet == parse_address("0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A")
    merchant, token = "0x" + "22" * 20, "0x" + "33" * 20
    other = read_environment(
        {**ENV, "NETWORK": "cronos-mainnet", "MERCHANT_ADDRESS": merchant, "TOKEN_ADDRESS": token}
    )
    assert other.network.chain_id == MAINNET.chain_id
    assert (other.pay_to, other.network.asset) == (parse_address(merchant), parse_address(token))


@pytest.mark.clause("2.8/settings")
@pytest.mark.parametrize("missing", ENV)
def test_a_missing_setting_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match=f"variable {missing} is not set"):
        read_environment({k: v for k, v in ENV.items() if k != missing})
    with pytest.raises(ValueError, match=f"variable {missing} is not set"):
        read_environment({**ENV, missing: ""})


@pytest.mark.clause("2.8/settings")
def test_a_facilitator_of_the_standard_needs_no_explorer() -> None:
    fewer = {name: ENV[name] for name in ("PRIVATE_KEY", "RPC_URL")}
    setup = read_environment(fewer, None, "http://127.0.0.1:1")
    assert (setup.dialect, setup.facilitator_url) == ("standard", "http://127.0.0.1:1")
    assert setup.explorer_url == ""
    assert read_environment(ENV, None, "http://f").explorer_url == ENV["EXPLORER_URL"]
    assert read_environment(ENV).dialect == "cronos"


def test_a_flow_is_known_and_settles_when_the_policies_do() -> None:
    eager = ServicePolicy(serve=ServeBeforeSettle())
    assert Settings(payment_flow="authorization", policy=eager).payment_flow == "authorization"
    with pytest.raises(ValueError, match="unknown word 'escrow'"):
        Settings(payment_flow="escrow")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'upfront' settles first, and the policy serve does not"):
        Settings(payment_flow="upfront", policy=eager)


@pytest.mark.clause("2.2/payment-id", "2.1/requirements", "2.1/description-shown")
def test_an_id_is_good_only_where_it_was_issued() -> None:
    def issuer(**changed: object) -> Issuer:
        setup = Environment(**CONNECTED | changed)  # type: ignore[arg-type]
        return Issuer(setup, Rng(1).stream("salts"))

    required = issuer().issue("/api/perp/quote", 10_000, now_s=0)
    assert issuer().read(required.payment_id) is not None, "after a restart"
    for other in (
        issuer(private_key=b"x" * 32),
        issuer(secret=b"x" * 32),
        issuer(network=MAINNET),
        issuer(recipient=parse_address("0x" + "22" * 20)),
        issuer(settings=Settings(max_timeout_s=301)),
    ):
        assert other.read(required.payment_id) is None


@pytest.mark.clause("2.2/payment-id")
def test_ids_are_sealed_with_a_random_secret_that_the_database_keeps(tmp_path: Path) -> None:
    def issuer(file: Path | None) -> Issuer:
        process, _ = open_service(read_environment(ENV), file, Journal(limit=1))
        process.service.store.close()
        return process.service.issuer

    kept = issuer(tmp_path / "kept.db").issue("/api/perp/quote", 10_000, now_s=0).payment_id
    assert issuer(tmp_path / "kept.db").read(kept) is not None, "after a restart"
    for file in (None, tmp_path / "other.db"):
        assert issuer(file).read(kept) is None, "the settings are the same, the secret is not"


@pytest.mark.clause("9/no-version-segment")
@scene
async def test_no_path_has_a_version(rig: ServiceRig) -> None:
    import re

    spec = (await rig.http.get("/openapi.json")).json()
    assert len(spec["paths"]) >= 10
    assert not [path for path in spec["paths"] if re.search(r"/v\d", path)]
    assert (await rig.http.post("/v1/api/pay")).status_code == 404
    assert (await rig.http.post("/api/v1/pay")).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"quote_price": 0.01}, "quote_price: expected a text, got 0.01"),
        ({"quote_price": "0.00"}, "quote_price: expected more than 0 tokens"),
        ({"quote_price": "1,00"}, "quote_price: expected a plain decimal"),
        ({"indexer_batch": 1.5}, "indexer_batch: expected a whole number above 0, got 1.5"),
        ({"indexer_interval_s": 0}, "indexer_interval_s: expected a number above 0, got 0"),
        ({"session_sweep_s": True}, "session_sweep_s: expected a number above 0, got True"),
        ({"phase": -1}, "phase: expected a number from 0 or None, got -1"),
        ({"pending_wait_s": (10, 5)}, "pending_wait_s: the first wait is longer"),
        ({"pending_wait_s": 15}, r"pending_wait_s: expected \(first, longest\)"),
        ({"decisions": "mine"}, "decisions: expected Decisions, got 'mine'"),
    ],
)
def test_an_impossible_setting_is_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Settings(**wrong)


def test_a_world_takes_the_settings_of_its_service() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        assert (await alice.ask()).price_base == 250_000

    run = World(service=Settings(quote_price="0.25")).play(story)
    assert run.outcome == "passed", run.reason
    with pytest.raises(ValueError, match="cronos-testnet: expected at most 6 fraction digits"):
        Environment(**CONNECTED, settings=Settings(quote_price="0.0000001"))  # type: ignore[arg-type]
