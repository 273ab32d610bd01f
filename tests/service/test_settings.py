"""Section 2.8: the settings, and what the service cannot be asked."""

from pathlib import Path

import pytest

from tests.rig import ServiceRig, scene
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.networks import MAINNET
from x402sim.rng import Rng
from x402sim.service.issue import Issuer
from x402sim.service.settings import Settings, settings_from_env
from x402sim.world.server.standalone import open_service

ENV = {
    "PRIVATE_KEY": "0x" + "11" * 32,
    "FACILITATOR_URL": "http://f",
    "EXPLORER_URL": "http://e",
    "RPC_URL": "http://r",
}


@pytest.mark.clause("2.8/settings")
def test_the_settings_come_from_the_environment() -> None:
    settings = settings_from_env(ENV)
    assert settings.network.name == "cronos-testnet"
    assert settings.pay_to == settings.wallet
    assert settings.wallet == parse_address("0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A")
    merchant, token = "0x" + "22" * 20, "0x" + "33" * 20
    other = settings_from_env(
        {**ENV, "NETWORK": "cronos-mainnet", "MERCHANT_ADDRESS": merchant, "TOKEN_ADDRESS": token}
    )
    assert other.network.chain_id == MAINNET.chain_id
    assert (other.pay_to, other.network.asset) == (parse_address(merchant), parse_address(token))


@pytest.mark.clause("2.8/settings")
@pytest.mark.parametrize("missing", ENV)
def test_a_missing_setting_is_named(missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        settings_from_env({k: v for k, v in ENV.items() if k != missing})
    with pytest.raises(ValueError, match=missing):
        settings_from_env({**ENV, missing: ""})


@pytest.mark.clause("2.2/payment-id", "2.1/requirements", "2.1/description-shown")
def test_an_id_is_good_only_where_it_was_issued() -> None:
    def issuer(**changed: object) -> Issuer:
        settings = Settings(
            **{"private_key": b"k" * 32, "secret": b"s" * 32, "facilitator_url": "",
               "explorer_url": "", "rpc_url": "", **changed}  # type: ignore[arg-type]
        )  # fmt: skip
        return Issuer(settings, Rng(1).stream("salts"))

    required = issuer().issue("/api/perp/quote", 10_000, now_s=0)
    assert issuer().read(required.payment_id) is not None, "after a restart"
    for other in (
        issuer(private_key=b"x" * 32),
        issuer(secret=b"x" * 32),
        issuer(network=MAINNET),
        issuer(recipient=parse_address("0x" + "22" * 20)),
        issuer(max_timeout_s=301),
    ):
        assert other.read(required.payment_id) is None


@pytest.mark.clause("2.2/payment-id")
def test_ids_are_sealed_with_a_random_secret_that_the_database_keeps(tmp_path: Path) -> None:
    def issuer(file: Path | None) -> Issuer:
        process, _ = open_service(settings_from_env(ENV), file)
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


def test_the_final_depth_is_a_number_of_blocks() -> None:
    assert settings_from_env(ENV).final_depth == 12
    assert settings_from_env({**ENV, "FINAL_DEPTH": "0"}).final_depth == 0
    for wrong in ("-1", "twelve", "1.5", "¹"):
        with pytest.raises(ValueError, match="FINAL_DEPTH is a number from 0, not"):
            settings_from_env({**ENV, "FINAL_DEPTH": wrong})
