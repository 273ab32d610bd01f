"""`serve`: the whole world on one port, as a local mock server."""

import gc
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.markup import escape
from starlette.routing import Mount

from x402sim.commands import common, selling
from x402sim.commands.common import Misuse
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.http import web
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.messages import decoded
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import NETWORKS, choose_network
from x402sim.protocol.routes import ORDER
from x402sim.service.goods import Good
from x402sim.service.settings import Settings
from x402sim.serving import serve as server
from x402sim.serving.control.messages import Ready
from x402sim.serving.listen import Listen, base_url, certified, listening_socket, own_programs_only
from x402sim.text.console import console as new_console
from x402sim.text.program import shown
from x402sim.text.words import unknown
from x402sim.world.chains import DEFAULT_CHAIN, parse_chain
from x402sim.world.world import World, with_goods

if TYPE_CHECKING:
    from rich.console import Console

Recording = Annotated[
    Path | None,
    typer.Option(
        help="Answer as the shop in this file of `watch --out`, without a world.",
        metavar="FILE",
    ),
]
_OF_RECORDING = ("recording", "host", "port", "as_json")

SETTINGS = ", ".join(each.name for each in fields(FacilitatorSettings))
TOKEN_VARIABLE = "X402SIM_CONTROL_TOKEN"  # noqa: S105 - the variable's name
Db = Annotated[
    Path | None,
    typer.Option(
        help="Keep the data in this SQLite file, and the chain in FILE.chain.",
        metavar="FILE",
    ),
]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        help=f"{', '.join(NETWORKS)}, or one of --network-file; repeatable. Each has a chain at "
        "/rpc/NAME; the service is on the first. [default: cronos-testnet, or the file's only "
        "network]",
        metavar="NAME",
        show_default=False,
        autocompletion=common.completing(lambda: NETWORKS),
    ),
]
NetworkFile = Annotated[
    Path | None,
    typer.Option(
        help="TOML file with more networks, one table `[[network]]` each: name, chain_id, asset, "
        "token_name, token_symbol, token_version, decimals, base_fee_gwei (default 1).",
        metavar="FILE",
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
        help="Phrase of the accounts. [default: that of anvil; with --seed or `--chain URL`, "
        "accounts drawn from the seed]",
        metavar="WORDS",
    ),
]
BlockTime = Annotated[
    float | None,
    typer.Option(
        help="Mine a block every SECONDS. [default: every transaction at once]",
        parser=common.number,
        metavar="SECONDS",
        show_default=False,
    ),
]
ControlToken = Annotated[
    str | None,
    typer.Option(
        help="Bearer token for the control API, needed unless --host is loopback.",
        envvar=TOKEN_VARIABLE,
        metavar="TOKEN",
    ),
]
Tls = Annotated[
    Path | None,
    typer.Option(
        help="Serve https, and write the authority to trust to FILE. Needs the extra `tls`.",
        metavar="FILE",
    ),
]
Flow = Annotated[
    Literal["authorization", "upfront"] | None,
    typer.Option(
        parser=common.one_of("flow", "authorization", "upfront"),
        help="When a one-step payment is settled: authorization (after the endpoint) or upfront.",
        metavar="FLOW",
        show_default=False,
    ),
]
FacilitatorSetting = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Setting of the facilitator, such as receipt_timeout_s=0.5; repeatable: {SETTINGS}.",
        metavar="NAME=VALUE",
    ),
]
NoService = Annotated[
    bool,
    typer.Option(
        "--no-service",
        help="Run the world only, and print the settings for a service of your own.",
    ),
]
Deploy = Annotated[
    bool,
    typer.Option(
        "--deploy",
        help="Deploy a new token on the node of `--chain URL`, and fund the accounts.",
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        help="Admit the web pages of this origin, such as http://localhost:3000; repeatable.",
        metavar="URL",
    ),
]
RpcOrigin = Annotated[
    list[str] | None,
    typer.Option(
        help="Admit this origin to /rpc only, such as chrome-extension://ID of a wallet, or "
        "chrome-extension://* of every extension; repeatable.",
        metavar="ORIGIN",
    ),
]
StopWithStdin = Annotated[
    bool,
    typer.Option(
        "--stop-with-stdin",
        help="Stop when stdin ends, as a pipe of the starting program does.",
    ),
]


def serve(
    context: typer.Context,
    host: common.Host = "127.0.0.1",
    port: common.Port = 4020,
    db: Db = None,
    seed: Seed = None,
    mnemonic: Mnemonic = None,
    network: Networks = None,
    network_file: NetworkFile = None,
    block_time: BlockTime = None,
    chain: common.Chain = "ledger",
    token: common.Token = None,
    deploy: Deploy = False,
    control_token: ControlToken = None,
    allow_origin: AllowOrigin = None,
    rpc_origin: RpcOrigin = None,
    no_service: NoService = False,
    sell: selling.Sell = None,
    body: selling.Body = None,
    openapi: selling.OpenApi = None,
    upstream: selling.UpstreamUrl = None,
    price: selling.Price = None,
    payment_flow: Flow = None,
    facilitator: FacilitatorSetting = None,
    tls: Tls = None,
    recording: Recording = None,
    stop_with_stdin: StopWithStdin = False,
    as_json: common.ReadyJson = False,
    log: common.LogForm = "text",
    verbose: common.Verbose = False,
    quiet: common.Quiet = False,
) -> None:
    """Start a local mock server: a whole world on one port."""
    if recording is not None:
        _answer_as(recording, context, Listen(host=host, port=port), as_json=as_json)
        return
    with common.as_misuse():
        backend = parse_chain(chain, token=token, deploy=deploy)
    with common.starting(db, None if backend == DEFAULT_CHAIN else backend.name):
        # Typer treats an empty variable as not set; but an empty token is an error
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
            file=db,
            unlocked=listen.is_local,
            has_service=not no_service,
            block_time_s=block_time,
            chain=backend,
            service=Settings(phase=0, payment_flow=payment_flow),
            facilitator=facilitator_settings(facilitator),
        )
        if goods := selling.goods(sell, body, openapi, upstream, price):
            world = with_goods(world, goods)
        parts, sock = server.open_world(world, listen)

    def on_start(running: Any, ready: Ready) -> None:
        common.stop_on_signals(running)
        if stop_with_stdin:
            common.stop_with_stdin(running)
        if as_json:
            typer.echo(json.dumps(msgspec.to_builtins(ready)))
        else:
            show(ready, db, [each for each in goods if each.price is not None])

    gc.collect()
    gc.freeze()  # so that no later collection walks through all modules again
    form = common.log_form(log, verbose=verbose, quiet=quiet)
    server.run(server.serve(parts, listen, sock, on_start, form))
    if not as_json:
        typer.echo("stopped" + (f"; the data is in {db}" if db else ""))


def facilitator_settings(given: list[str] | None) -> FacilitatorSettings:
    """Parse settings in the form NAME=VALUE; raises `ValueError`."""
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


# --- printing ---------------------------------------------------------------------------

CRONOS_PATH = "/v2/x402"
OFF = "off: on this host it needs --control-token"
"""Printed in place of the URL if the control API is disabled."""


def show(ready: Ready, db: Path | None, goods: Sequence[Good] = ()) -> None:
    """Print the ready message, readable at 80 columns and safe to copy from."""
    goods = sorted(goods, key=lambda each: each.upto)  # what needs no approval is tried first
    from rich.table import Table  # programs do not need it

    console = new_console(soft_wrap=True, highlight=False)
    url = ready.service
    if url is None:
        _show_world(console, ready)
        return
    console.print(f"[bold]x402sim[/] on {ready.network} (chain id {ready.chain_id})\n")
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("service", url),
        *(("sells", f"{each.name}  {'upto ' * each.upto}{each.price} tokens") for each in goods),
        ("facilitator", f"{ready.facilitator}  (x402 versions 1 and 2)"),
        ("", f"{ready.facilitator}{CRONOS_PATH}  (Cronos)"),
        ("explorer", ready.explorer),
        ("json-rpc", ready.rpc),
        *(("", f"{each.rpc}  (chain id {each.chain_id})") for each in ready.networks[1:]),
        ("chain", ready.chain),
        ("page", f"{ready.control}/ui  (every payment, live)" if ready.control else "off"),
        ("control", ready.control or OFF),
        ("documentation", f"{url}/docs"),
        ("payTo", ready.pay_to),
        ("token", ready.asset),
        ("database", str(db) if db else "in memory; --db FILE keeps the data"),
    ):
        table.add_row(f"[dim]{name}[/]", value)
    console.print(table)
    console.print("\n[bold]Accounts[/]  (the keys are public: never use them on a real chain)")
    for number, account in enumerate(ready.accounts):
        funds = to_decimal(int(account.balance), ready.token.decimals)
        console.print(f"({number}) {account.address}  {funds} tokens")
        console.print(f"    [dim]{account.private_key}[/]")
    order = json.dumps(ORDER, separators=(",", ":"))
    console.print("\n[bold]Try[/]")
    wanted, paid = "", f"{url}/api/perp/market"
    if goods:
        wanted = f" -X {goods[0].method}" if goods[0].method not in ("", "GET") else ""
        paid = f"{url}{goods[0].sample}"
        console.print(f"curl -i{wanted} {paid}", markup=False)
    else:
        quote = f"{url}/api/perp/quote"
        console.print(f"curl -i {quote} -H 'Content-Type: application/json' -d '{order}'")
    if ready.control:
        console.print(f"curl {ready.control}")
        is_believed = _is_known(ready) and NETWORKS[ready.network].is_test
        believed = "" if is_believed else f" --world {url}"
        believed += " --permit2" * bool(goods and goods[0].upto)
        console.print(f"x402sim pay{wanted} {paid}{believed}", markup=False)
    console.print("\nor pay from Python:")
    for line in quick_start(ready, next(iter(goods), None)):
        console.print(line, markup=False)
    console.print("\nCtrl-C stops it.")


def _show_world(console: "Console", ready: Ready) -> None:
    console.print(f"[bold]x402sim[/] world without a service, on {ready.network}\n")
    console.print("[bold]Settings for your service[/], under whatever names it uses")
    merchant = ready.accounts[-1]
    settings = [
        ("FACILITATOR_URL", ready.facilitator),
        ("EXPLORER_URL", ready.explorer),
        ("RPC_URL", ready.rpc),
        ("NETWORK", ready.network),
        ("CHAIN_ID", str(ready.chain_id)),
        ("TOKEN_ADDRESS", ready.asset),
        ("TOKEN_NAME", shlex.quote(ready.token.name)),
        ("TOKEN_VERSION", ready.token.version),
        ("PRIVATE_KEY", merchant.private_key),
        ("MERCHANT_ADDRESS", merchant.address),
    ]
    for name, value in settings:
        console.print(f"export {name}={value}")
    for each in ready.networks[1:]:
        console.print(f"\n(also {each.network}, chain id {each.chain_id}: {each.rpc}")
        console.print(f" token {each.asset})")
    world = f" --world {ready.control}" if ready.control else ""
    page = f"{ready.control}/ui" if ready.control else OFF
    console.print(
        "\n(The last two are one funded account: your server wallet. More: /_sim/accounts)\n"
        "\n(FACILITATOR_URL speaks x402 versions 1 and 2, and the Cronos dialect below\n"
        f"{CRONOS_PATH})\n"
        f"\n[bold]Then check it[/]\n{escape(shown())} conformance YOUR_URL{world}\n"
        f"\n[bold]See its payments live[/]  {page}\n"
        "\nCtrl-C stops it."
    )


def quick_start(ready: Ready, good: Good | None = None) -> list[str]:
    """Return a program that pays for a good of the user, or for a quote."""
    network, own = "", list[str]()
    if not _is_known(ready):
        asset, token = f"bytes.fromhex({ready.asset[2:]!r})", ready.token
        texts = ", ".join(map(repr, (token.name, token.symbol, token.version)))
        own = [f"network = Network({ready.network!r}, {token.chain_id},"]
        own += [f"    {asset},", f"    {texts}, {token.decimals})"]
        network = ", network=network"
    elif not NETWORKS[ready.network].is_test:
        network = f", network={ready.network!r}"
    key = ready.accounts[0].private_key
    bought = [
        f"order = {json.dumps(ORDER)}",
        f'print(httpx.post("{ready.service}/api/perp/quote", json=order, auth=payer).json())',
    ]
    if good is not None:
        request = f'httpx.request("{good.method or "GET"}", "{ready.service}{good.sample}"'
        bought = [f"print({request}, auth=payer).text)"]
        network += ", permit2=True" * good.upto
    return [
        "import httpx",
        f"from x402sim import {'Network, ' * bool(own)}PaymentAuth, Wallet",
        *own,
        f'payer = PaymentAuth(Wallet("{key}"), max_amount="0.05"{network})',
        *bought,
    ]


def _is_known(ready: Ready) -> bool:
    """Tell whether payers know the network and its token by themselves."""
    known = NETWORKS.get(ready.network)
    return known is not None and known.asset == parse_address(ready.asset)


def _answer_as(recording: Path, context: typer.Context, listen: Listen, *, as_json: bool) -> None:
    from x402sim.watch.replay import Replay  # a world starts sooner without it

    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in _OF_RECORDING and source is not None and source.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise Misuse(f"--recording starts no world: omit {option}")
    journal = common.load_journal(recording)
    with common.starting(None):
        shop = Replay(journal)
        sock = listening_socket(listen)
    app = web.Application([Mount("/", app=shop)])

    def on_start() -> None:
        common.stop_on_signals(running)
        url, count = base_url(listen, sock), len(shop.asked)
        if as_json:
            typer.echo(json.dumps({"event": "ready", "service": url}))
        else:
            typer.echo(f"{url} answers {count} recorded requests: {', '.join(shop.asked[:5])}")
            typer.echo("Ctrl-C stops it.")

    running = server.Server(own_programs_only(app, (), is_local=listen.is_local), on_start)
    server.run(running.serve(sockets=[sock]))
