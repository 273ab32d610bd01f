"""What the chain says, read over public JSON-RPC and from the explorer."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tests.crash.deployment import Deployment
from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex

USED, TRANSFER = to_hex(abi.AUTHORIZATION_USED), to_hex(abi.TRANSFER_EVENT)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Money that moved: base units, lower-case addresses."""

    sender: str
    to: str
    amount: int
    tx_hash: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every use of an authorization and every transfer, at one moment."""

    charges: dict[str, list[Transfer]]
    """By nonce: the transfers of the transactions that used the authorization."""
    transfers: list[Transfer]

    def by_hash(self, tx_hash: str) -> list[Transfer]:
        """Return the transfers of one transaction."""
        return [each for each in self.transfers if each.tx_hash == tx_hash]


def read_ledger(deployment: Deployment) -> Ledger:
    """Read all events of the token."""
    transfers = [
        Transfer(_address(t[1]), _address(t[2]), int(log["data"], 16), log["transactionHash"])
        for log in _logs(deployment, TRANSFER)
        for t in [log["topics"]]
    ]
    by_hash: dict[str, list[Transfer]] = defaultdict(list)
    for each in transfers:
        by_hash[each.tx_hash].append(each)
    charges: dict[str, list[Transfer]] = defaultdict(list)
    for log in _logs(deployment, USED):
        charges[log["topics"][2]] += by_hash[log["transactionHash"]]
    return Ledger(dict(charges), transfers)


def balance(deployment: Deployment, account: str) -> int:
    """Return an account's balance, in base units."""
    data = to_hex(abi.balance_of(parse_address(account)))
    return int(_rpc(deployment, "eth_call", {"to": deployment.ready["asset"], "data": data}), 16)


def explorer_confirms(deployment: Deployment, tx_hash: str) -> bool:
    """Tell whether the explorer shows a transaction that took effect."""
    query = {"module": "proxy", "action": "eth_getTransactionReceipt", "txhash": tx_hash}
    found = deployment.world.get("/explorer/api", params=query).json().get("result")
    return isinstance(found, dict) and found["status"] == "0x1"


def _logs(deployment: Deployment, topic: str) -> list[Any]:
    wanted = {"address": deployment.ready["asset"], "fromBlock": "0x0", "topics": [topic]}
    logs: list[Any] = _rpc(deployment, "eth_getLogs", wanted)
    return logs


def _rpc(deployment: Deployment, method: str, *params: Any) -> Any:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = deployment.world.post("/rpc", json=call).json()
    assert "result" in answer, answer
    return answer["result"]


def _address(topic: str) -> str:
    return "0x" + topic[26:].lower()
