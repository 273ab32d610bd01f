"""`serve`: the whole world on one port, as a local mock server."""

import gc
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from x402sim.commands import common
from x402sim.commands.ready_file import ReadyFile, ready_file
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.protocol.messages import decoded
from x402sim.protocol.networks import NETWORKS, choose_network
from x402sim.service.settings import Settings
from x402sim.text.suggest import unknown
from x402sim.world.chains import DEFAULT_CHAIN, parse_chain
from x402sim.world.control.messages import Ready
from x402sim.world.server import serve as server
from x402sim.world.server.listen import Listen, certified
from x402sim.world.world import World

TOKEN_VARIABLE = "X402SIM_CONTROL_TOKEN"  # noqa: S105 - its name
Db = Annotated[
    Path | None,
    typer.Option(
        help="Keep all data in this SQLite file, and the chain in FILE.chain. Without it, data "
        "is lost when the server stops.",
        metavar="FILE",
    ),
]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        help=f"Network: {common.NETWORK_NAMES}, or one of --network-file. Repeatable: each has a "
        "chain and a token, at /rpc/NAME; the facilitator settles on all, and the service is on "
        "the first. [default: cronos-testnet, or the file's only network]",
        metavar="NAME",
        show_default=False,
        autocompletion=common.completing(lambda: NETWORKS),
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of all keys. Without --db, also of payment ids.",
        parser=common.whole,
        metavar="N",
    ),
]
Mnemonic = Annotated[
    str | None,
    typer.Option(
        help="Phrase of the funded accounts, on m/44'/60'/0'/0/i. Default: that of anvil and "
        "Hardhat (test ... junk); with --seed or `--chain URL`, accounts drawn from the seed.",
        metavar="WORDS",
    ),
]
Accounts = Annotated[
    int, typer.Option(help="How many accounts to fund, 1 to 100.", parser=common.whole, metavar="N")
]
ControlToken = Annotated[
    str | None,
    typer.Option(
        help="Bearer token for the control API. Without one, the control API is disabled unless "
        "--host is 127.0.0.1 or ::1.",
        envvar=TOKEN_VARIABLE,
        metavar="TOKEN",
    ),
]
Tls = Annotated[
    Path | None,
    typer.Option(
        help="Serve https with a certificate made for this run, and write the authority for "
        "clients to trust into this file; needs the extra `tls`.",
        metavar="FILE",
    ),
]
Flow = Annotated[
    Literal["authorization", "upfront"] | None,
    typer.Option(
        "--payment-flow",
        parser=common.one_of("flow", "authorization", "upfront"),
        help="When the service settles a payment in one step, stated in its 402: authorization, "
        "after the endpoint has worked, or upfront, before.",
        metavar="FLOW",
        show_default=False,
    ),
]
FacilitatorSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--facilitator",
        help="Setting of the facilitator, repeatable: receipt_timeout_s=SECONDS that it waits for "
        "a block before it says that a settlement is pending, simulates=false, "
        "simulates_verify=false, native=COINS that it has for gas, servers=N requests at a time, "
        "service_time_s=SECONDS that each takes, queue_length=N that can wait.",
        metavar="NAME=VALUE",
    ),
]
NoService = Annotated[
    bool,
    typer.Option(
        "--no-service",
        help="Run the world without a service, and print the settings for a service of your own.",
    ),
]
AtBlockTime = Annotated[
    bool,
    typer.Option(
        "--calls-at-block-time",
        help="Judge eth_call at the newest block's timestamp, as an idle node does, and not now.",
    ),
]
Deploy = Annotated[
    bool,
    typer.Option(
        "--deploy",
        help="Deploy a new token on the node first, owned by the first key, and fund the "
        "accounts; needs `--chain URL`.",
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        help="Allow cross-origin requests from this web origin, such as http://localhost:3000; "
        "repeatable.",
        metavar="URL",
    ),
]
RpcOrigin = Annotated[
    list[str] | None,
    typer.Option(
        help="Allow this origin on /rpc only, such as a wallet's chrome-extension://ID; "
        "repeatable. chrome-extension://* and moz-extension://* are every extension.",
        metavar="ORIGIN",
    ),
]
StopWithStdin = Annotated[
    bool,
    typer.Option(
        "--stop-with-stdin",
        help="Stop when stdin ends: give it a pipe, and the server ends with the program that "
        "started it, however that ends.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object with URLs and accounts when ready.")
]


def serve(
    context: typer.Context,
    host: common.Host = "127.0.0.1",
    port: common.Port = 4020,
    db: Db = None,
    seed: Seed = None,
    mnemonic: Mnemonic = None,
    accounts: Accounts = 10,
    network: Networks = None,
    network_file: common.NetworkFile = None,
    block_time: common.BlockTime = None,
    calls_at_block_time: AtBlockTime = False,
    chain: common.Chain = "ledger",
    token: common.Token = None,
    deploy: Deploy = False,
    control_token: ControlToken = None,
    allow_origin: AllowOrigin = None,
    rpc_origin: RpcOrigin = None,
    no_service: NoService = False,
    payment_flow: Flow = None,
    facilitator: FacilitatorSetting = None,
    tls: Tls = None,
    stop_with_stdin: StopWithStdin = False,
    as_json: AsJson = False,
    to_file: ReadyFile = None,
    log: common.LogForm = "text",
    verbose: common.Verbose = False,
    quiet: common.Quiet = False,
) -> None:
    """Start a local mock server: a whole world on one port."""
    with common.as_misuse():
        backend = parse_chain(chain, token=token, deploy=deploy)
    write_ready = context.with_resource(ready_file(to_file))
    with common.starting(db, None if backend == DEFAULT_CHAIN else backend.name):
        # Typer takes an empty variable for one that is not set, but an empty token must be refused
        by_variable = os.environ.get(TOKEN_VARIABLE)
        listen = Listen(
            host=host,
            port=port,
            control_token=by_variable if control_token is None else control_token,
            allow_origins=tuple(allow_origin or ()),
            rpc_origins=tuple(rpc_origin or ()),
            tls=certified(host, tls) if tls else None,
        )
        world = World(
            network=[choose_network(each, network_file) for each in network or (None,)],
            seed=seed,
            mnemonic=mnemonic,
            accounts=accounts,
            file=db,
            unlocked=listen.is_local,
            has_service=not no_service,
            block_time_s=block_time,
            calls_at_block_time=calls_at_block_time,
            chain=backend,
            service=Settings(phase=0, payment_flow=payment_flow),
            facilitator=facilitator_settings(facilitator),
        )
        parts, sock = server.open_world(world, listen)

    def on_start(running: Any, ready: Ready) -> None:
        common.stop_on_signals(running)
        if stop_with_stdin:
            common.stop_with_stdin(running)
        line = json.dumps(msgspec.to_builtins(ready))
        if as_json:
            typer.echo(line)
        else:
            from x402sim.commands.banner import show  # with rich, which programs do not need

            show(ready, db)
        write_ready(f"{line}\n")  # last: who waits for it may read what is printed

    gc.collect()
    gc.freeze()  # the collector need not walk through all that is loaded, again and again
    form = common.log_form(log, verbose=verbose, quiet=quiet)
    server.run(server.serve(parts, listen, sock, on_start, form))
    if not as_json:
        typer.echo("stopped" + (f"; the data is in {db}" if db else ""))


def facilitator_settings(given: list[str] | None) -> FacilitatorSettings:
    """Return the settings that are given as NAME=VALUE; raises `ValueError`."""
    known = [each.name for each in fields(FacilitatorSettings)]
    values: dict[str, Any] = {}
    for each in given or ():
        name, _, value = each.partition("=")
        if name not in known:
            raise ValueError(f"--facilitator: {unknown('setting', name, known)}")
        read = decoded(value.encode(), bool | int | float)
        if read is None:
            raise ValueError(f"--facilitator {name}: wanted a number, true or false, got {value!r}")
        values[name] = read
    return FacilitatorSettings(**values)
