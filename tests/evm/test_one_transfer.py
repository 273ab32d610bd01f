"""One transfer pays for one good, also if a payer uses many authorizations in one transaction."""

from pathlib import Path

import httpx
import pytest

from tests.evm.test_multicall import three
from tests.rig import requirements
from x402sim import LocalServer, Wallet
from x402sim.backends import Anvil
from x402sim.chain.contract import MULTICALL
from x402sim.payer.core import changed, settlement
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.header import authorization_of


@pytest.mark.thorough
@pytest.mark.clause("5/nonce-once")
@pytest.mark.parametrize(("paid", "served"), [(1, [402, 402, 200]), (3, [200, 200, 200])])
def test_in_one_transaction_each_authorization_pays_by_its_own_transfer(
    program: Path, paid: int, served: list[int]
) -> None:
    """The payer presents three headers without funds, then signs some nonces again, for nothing."""
    payer, calls, presented = Wallet.create(), [], []
    with LocalServer(chain=Anvil(program)) as server, httpx.Client(trust_env=False) as http:
        rich, url, token = (
            server.wallets[0].address,
            f"{server.url}/api/perp/market",
            server.network,
        )
        pay_to, price_base = "", 0
        for number in range(len(served)):
            required = http.get(url).json()
            wanted = required["paymentRequirements"]
            pay_to, price_base = wanted["payTo"], int(wanted["maxAmountRequired"])
            header = payer.payment_header(requirements(wanted), server.clock.now_s())
            body = settlement(required["paymentId"], header, wanted)
            refused = http.post(f"{server.url}/api/pay", json=body).json()
            assert refused["final"] is False, refused
            presented.append((required["paymentId"], body))
            auth, signature = authorization_of(header)
            if number < len(served) - paid:
                auth = changed(auth, {"to": payer.address, "value": 0})
                signature = payer.sign(auth, token.domain)
            pays = abi.transfer_with_authorization(auth, signature)
            calls.append((checksum(token.asset), pays))

        def send(to: str, data: bytes) -> None:
            sent = {"from": rich, "to": to, "data": to_hex(data)}
            http.post(f"{server.control_url}/send", json=sent).raise_for_status()

        send(checksum(token.asset), abi.transfer(payer.address_bytes, paid * price_base))
        send(checksum(MULTICALL), three(calls, may_fail=False))
        assert server.balance(pay_to) == paid * price_base
        got = []
        for payment_id, body in presented:
            http.post(f"{server.url}/api/pay", json=body)
            got.append(http.get(url, headers={"X-Payment-Id": payment_id}).status_code)
        assert got == served
