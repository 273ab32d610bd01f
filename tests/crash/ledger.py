"""What the chain says, read over public JSON-RPC and from the explorer."""

from collections import defaultdict
from dataclasses import dataclass

from tests.crash.deployment import Deployment
from x402sim.protocol import abi


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
        for log in deployment.world.logs(abi.TRANSFER_EVENT)
        for t in [log["topics"]]
    ]
    by_hash: dict[str, list[Transfer]] = defaultdict(list)
    for each in transfers:
        by_hash[each.tx_hash].append(each)
    charges: dict[str, list[Transfer]] = defaultdict(list)
    for log in deployment.world.logs(abi.AUTHORIZATION_USED):
        charges[log["topics"][2]] += by_hash[log["transactionHash"]]
    return Ledger(dict(charges), transfers)


def explorer_confirms(deployment: Deployment, tx_hash: str) -> bool:
    """Tell whether the explorer shows a transaction that took effect."""
    query = {"module": "proxy", "action": "eth_getTransactionReceipt", "txhash": tx_hash}
    found = deployment.world.http.get("/explorer/api", params=query).json().get("result")
    return isinstance(found, dict) and found["status"] == "0x1"


def _address(topic: str) -> str:
    return "0x" + topic[26:].lower()
