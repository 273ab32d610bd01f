"""`facilitator`: the facilitator only, on your node, with your key."""

import os
from typing import Annotated, Any

import httpx
import typer

from x402sim.chain.node.batching import BatchingNode
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.clock import Clock
from x402sim.commands import common
from x402sim.commands.serve import facilitator_settings
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.http.exchange import OverClient
from x402sim.protocol.crypto import PrivateKey, checksum, parse_key
from x402sim.protocol.networks import choose_network
from x402sim.serving.listen import Listen, base_url, listening_socket
from x402sim.serving.serve import Server, run

KEYS = ("X402SIM_PRIVATE_KEY", "PRIVATE_KEY", "EVM_PRIVATE_KEY")
"""Environment variables for the relayer's key; the first set variable counts."""
RPCS = ("X402SIM_RPC_URL", "RPC_URL", "EVM_RPC_URL")
NETWORK = "X402SIM_NETWORK_NAME"
RECEIPT_S = 10.0
"""Seconds until the facilitator answers "pending": its callers wait for the answer."""


def facilitator(
    host: common.Host = "127.0.0.1",
    port: Annotated[int, common.port("Port to listen on", "PORT")] = 4022,
    rpc: Annotated[
        str, typer.Option(help="JSON-RPC of the chain's node.", metavar="URL", envvar=[*RPCS])
    ] = "",
    network: common.NetworkName = None,
    network_file: common.NetworkFile = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--facilitator",
            help="Setting, repeatable: receipt_timeout_s (10), simulates, simulates_verify, "
            "listing_delay_s.",
            metavar="NAME=VALUE",
        ),
    ] = None,
) -> None:
    """Start the facilitator only, on your node."""
    with common.starting(None):
        if not rpc.startswith(("http://", "https://")):
            wanted = f"give --rpc http://HOST:PORT of the chain's node, or set {RPCS[0]}"
            raise ValueError(f"{wanted}; got {rpc or 'nothing'}")
        key = next((os.environ[name] for name in KEYS if os.environ.get(name)), None)
        if not key:
            raise ValueError(f"set {KEYS[0]}: the key of the account that settles and pays the gas")
        secret = parse_key(key)
        chosen = choose_network(network or os.environ.get(NETWORK) or None, network_file)
        given = [f"receipt_timeout_s={RECEIPT_S:g}", *(setting or ())]
        settings = facilitator_settings(given)
        listen = Listen(host=host, port=port)
        sock = listening_socket(listen)
    clock = Clock()
    http = httpx.AsyncClient(timeout=None)  # noqa: S113 - the node's client has its own timeout
    node = BatchingNode(OverClient(http), rpc)
    one = Facilitator(
        chain=EvmChain(node, chosen, clock, [secret], may_lag=False),
        clock=clock,
        network=chosen,
        account=PrivateKey(secret).address,
        started_s=clock.now(),
        settings=settings,
    )

    def on_start() -> None:
        common.stop_on_signals(server)
        typer.echo(
            f"x402sim facilitator at {base_url(listen, sock)} on {chosen.name}, paying gas from "
            f"{checksum(one.account)}; Ctrl-C stops it"
        )

    server: Any = Server(facilitator_app(one), on_start)

    async def main() -> None:
        async with http:
            await server.serve(sockets=[sock])

    run(main())
    typer.echo("stopped")
