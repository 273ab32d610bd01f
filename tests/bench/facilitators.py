"""Payments on one anvil, in real time: by our facilitator, by the two official ones, and without any.

A payment is verified, then settled, over HTTP. The limit is the chain's alone: transactions that are
signed beforehand, and receipts awaited. Each side pays over as many connections as help, and every
round begins on a chain of the same age: anvil copies its whole state for each block, and a block costs
more the more payments there were.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from eth_account import Account
from msgspec import to_builtins

from tests import npm
from tests.bench.rounds import NotMeasured
from tests.bench.served import body_of, request
from tests.chain.helpers import nonce
from tests.interop import onchain, programs
from tests.serve.driver import READY_S, Running, command
from x402sim import BASE_SEPOLIA, Wallet
from x402sim.chain.base import GAS_LIMIT
from x402sim.chain.node.anvil import AnvilNode
from x402sim.commands.facilitator import KEYS
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.phrase import KNOWN, keys_of
from x402sim.protocol.x402 import domain_of, exact_payload
from x402sim.serving.listen import Listen, listening_socket

OURS, LIMIT, NPM, PYPI = "ours", "anvil", "npm", "pypi"
CONNECTIONS = (1, 4, 16)
"""The numbers of connections of which each side gets the best."""
PAYER, SHOP = Wallet(keys_of(KNOWN, 1)[0]), Wallet(b"\x51" * 32)
SENDERS = [Wallet(bytes([number]) * 32) for number in range(100, 100 + max(CONNECTIONS))]
RELAYERS = [Wallet(bytes([number]) * 32) for number in range(90, 93)]
RECIPES = Path(__file__).parents[2] / "conformance" / "recipes"
WINDOW_S = 3600
_NUMBERS = count()
Pays = Callable[[socket.socket], None]


class Failed(Exception):
    """A payment was not settled."""


def payments(rounds: int, times: int) -> dict[str, list[float]]:
    """Return the seconds of a payment in each round, by side; the rounds of the sides alternate."""
    with ExitStack() as stack:
        try:
            node = stack.enter_context(onchain.node())
            folder = Path(stack.enter_context(TemporaryDirectory()))
            ports = {LIMIT: urlsplit(node.url).port or 0}
            for name, (program, relayer) in _programs(node, folder).items():
                ports[name] = stack.enter_context(_serving(program, node, relayer))
        except npm.NotInstalled as why:
            raise NotMeasured(str(why)) from None
        for wallet in (*SENDERS, *RELAYERS):
            node.rpc.ask_now("anvil_setBalance", to_hex(wallet.address_bytes), hex(10**24))
        best = {name: _connections(node, name, port, times) for name, port in ports.items()}
        found: dict[str, list[float]] = {name: [] for name in ports}
        for number in range(rounds):
            for name in [*ports][:: 1 if number % 2 else -1]:
                found[name].append(_round(node, name, ports[name], best[name], times))
        return found


def _connections(node: AnvilNode, name: str, port: int, times: int) -> int:
    """Return how many connections help a side most; where payments fail, they do not help."""
    took_s = {}
    for connections in CONNECTIONS:
        with suppress(Failed):
            took_s[connections] = _round(node, name, port, connections, times)
    return min(took_s, key=took_s.__getitem__)


def _round(node: AnvilNode, name: str, port: int, connections: int, times: int) -> float:
    """Pay so many times on a chain as at the beginning; return the seconds of one payment."""
    each = times // connections
    work = [
        [_sent(n, i) if name == LIMIT else _paid() for i in range(each)] for n in range(connections)
    ]
    ask, state = node.rpc.ask_now, node.rpc.ask_now("evm_snapshot")
    with ExitStack() as stack, ThreadPoolExecutor(connections) as threads:
        address = "127.0.0.1", port
        socks = [stack.enter_context(socket.create_connection(address, READY_S)) for _ in work]
        began = time.perf_counter()
        list(threads.map(_pay_all, socks, work))
        took_s = time.perf_counter() - began
    counts = [ask("eth_getTransactionCount", each.address, "latest") for each in RELAYERS]
    ask("evm_revert", state)
    for wallet, sent in zip(RELAYERS, counts, strict=True):  # a facilitator may count its own
        ask("anvil_setNonce", wallet.address, sent)
    return took_s / (each * connections)


def _pay_all(sock: socket.socket, work: Sequence[Pays]) -> None:
    for pays in work:
        pays(sock)


def _authorized() -> tuple[Authorization, bytes]:
    auth = Authorization(
        from_=PAYER.address_bytes,
        to=SHOP.address_bytes,
        value=1,
        valid_after=0,
        valid_before=int(time.time()) + WINDOW_S,
        nonce=nonce(next(_NUMBERS)),
    )
    return auth, PAYER.sign(auth, BASE_SEPOLIA.domain)


def _sent(sender: int, number: int) -> Pays:
    """Sign a transaction; return what sends it to the node and awaits the receipt."""
    fields = {
        "to": checksum(BASE_SEPOLIA.asset),
        "data": abi.transfer_with_authorization(*_authorized()),
        "value": 0,
        "gas": GAS_LIMIT,
        "gasPrice": 10**10,
        "nonce": number,
        "chainId": BASE_SEPOLIA.chain_id,
    }
    raw = to_hex(Account.sign_transaction(fields, SENDERS[sender].private_key).raw_transaction)
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransactionSync", "params": [raw]}
    asked = request("/", json.dumps(call).encode())

    def pays(sock: socket.socket) -> None:
        sock.sendall(asked)
        answer = json.loads(body_of(sock, 200))
        if answer.get("result", {}).get("status") != "0x1":
            raise Failed(answer)

    return pays


def _paid() -> Pays:
    """Sign a payment; return what lets a facilitator verify and settle it."""
    network = BASE_SEPOLIA
    wanted = {
        "scheme": "exact",
        "network": network.caip2,
        "amount": "1",
        "asset": checksum(network.asset),
        "payTo": SHOP.address,
        "maxTimeoutSeconds": WINDOW_S,
        "extra": domain_of(network),
    }
    payment = {
        "x402Version": 2,
        "accepted": wanted,
        "payload": to_builtins(exact_payload(*_authorized())),
        "resource": {"url": "http://shop.test/", "description": "", "mimeType": "text/plain"},
    }
    asked = {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": wanted}
    body = json.dumps(asked).encode()

    def pays(sock: socket.socket) -> None:
        for path, field in (("/verify", "isValid"), ("/settle", "success")):
            sock.sendall(request(path, body))
            try:
                answer = json.loads(body_of(sock, 200))
            except ConnectionError as refused:
                raise Failed(refused) from None
            if not answer.get(field):
                raise Failed(answer)

    return pays


def _programs(node: AnvilNode, folder: Path) -> dict[str, tuple[list[str], Wallet]]:
    """Return the commands of the facilitators, each with the account that pays its gas."""
    named = ["--network", BASE_SEPOLIA.name, "--rpc", node.url]
    mjs, py = ((RECIPES / f"facilitator.{suffix}").read_text("utf-8") for suffix in ("mjs", "py"))
    commands = {
        OURS: command("facilitator", *named),
        NPM: programs.in_node(mjs, folder),
        PYPI: programs.in_python(py, folder),
    }
    return dict(zip(commands, zip(commands.values(), RELAYERS, strict=True), strict=True))


@contextmanager
def _serving(program: list[str], node: AnvilNode, relayer: Wallet) -> Iterator[int]:
    """Run a facilitator until the block ends; yield the port once it listens."""
    with listening_socket(Listen(port=0)) as free:
        port = free.getsockname()[1]
    env = {
        "PORT": str(port),
        "RPC_URL": node.url,
        KEYS[0]: relayer.private_key,
        "X402SIM_NETWORK": BASE_SEPOLIA.caip2,
    }
    options = ("--port", str(port)) if "facilitator" in program else ()
    with Running(program=[*program, *options], env=env) as running:
        end = time.monotonic() + READY_S
        while time.monotonic() < end and running.process.poll() is None:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        else:
            raise NotMeasured(f"{program} did not start: {running.errors()[-500:]}")
        yield port
