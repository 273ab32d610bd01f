"""What `serve` prints: the URLs, the funded accounts, and how to begin."""

import json
import shlex
from pathlib import Path

from rich.console import Console
from rich.table import Table

from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, TESTNET
from x402sim.protocol.routes import ORDER
from x402sim.text.console import console as new_console
from x402sim.text.program import SHOWN
from x402sim.world.control.messages import Ready

CRONOS_PATH = "/v2/x402"
OFF = "off: on this host it needs --control-token"
"""What is shown for a control API that there is not."""


def show(ready: Ready, db: Path | None) -> None:
    """Print the ready message, readable at 80 columns and safe to copy from."""
    console = new_console(soft_wrap=True, highlight=False)
    url = ready.service
    if url is None:
        _show_world(console, ready)
        return
    console.print(f"[bold]x402sim[/] on {ready.network} (chain id {ready.chain_id})\n")
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("service", url),
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
    console.print(f"curl -i {url}/api/perp/quote -H 'Content-Type: application/json' -d '{order}'")
    if ready.control:
        console.print(f"curl {ready.control}")
        console.print(f"x402sim pay {url}/api/perp/market")
    console.print("\nor pay from Python:")
    for line in quick_start(ready):
        console.print(line, markup=False)
    console.print("\nCtrl-C stops it.")


def _show_world(console: Console, ready: Ready) -> None:
    """Print the settings of an external service that uses this world."""
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
        f"\n[bold]Then check it[/]\n{SHOWN} conformance YOUR_URL{world}\n"
        f"\n[bold]See its payments live[/]  {page}\n"
        "\nCtrl-C stops it."
    )


def quick_start(ready: Ready) -> list[str]:
    """Return a program that pays for a quote."""
    imports, lines, network = _network(ready)
    key = ready.accounts[0].private_key
    return [
        "import httpx",
        f"from x402sim import {', '.join(sorted([*imports, 'PaymentAuth', 'Wallet']))}",
        *lines,
        f'payer = PaymentAuth(Wallet("{key}"), max_amount="0.05"{network})',
        f"order = {json.dumps(ORDER)}",
        f'print(httpx.post("{ready.service}/api/perp/quote", json=order, auth=payer).json())',
    ]


def _network(ready: Ready) -> tuple[list[str], list[str], str]:
    """Return what a program imports, does and passes on to pay on this network."""
    named = {MAINNET.name: "MAINNET", BASE_SEPOLIA.name: "BASE_SEPOLIA"}
    if ready.network == TESTNET.name:
        return [], [], ""
    if ready.network in named:
        return [named[ready.network]], [], f", network={named[ready.network]}"
    token = ready.token
    texts = (token.name, token.symbol, token.version)
    own = [
        f"asset = bytes.fromhex({ready.asset[2:]!r})",
        f"token = {', '.join(map(repr, texts))}, {token.decimals}",
        f"network = Network({ready.network!r}, {token.chain_id}, asset, *token)",
    ]
    return ["Network"], own, ", network=network"
