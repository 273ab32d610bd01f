"""`watch`: a recording reverse proxy before a service, a facilitator, or both."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Any

import httpx
import typer

from x402sim import events
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.chain.node.linked import LinkedNode
from x402sim.clock import Clock
from x402sim.commands import common
from x402sim.http.exchange import OverClient
from x402sim.journal import Journal
from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import decoded
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network, choose_network, known_networks
from x402sim.protocol.ways import network_called
from x402sim.text.printable import printable
from x402sim.watch.page import watched_page
from x402sim.watch.proxy import Proxy, Upstream
from x402sim.watch.recorder import HIDDEN, Recorder, Seen
from x402sim.world.server.listen import Listen, base_url, listening_socket
from x402sim.world.server.log import Form, LogLine, as_json, as_text, local_time, short
from x402sim.world.server.origins import own_programs_only
from x402sim.world.server.serve import Server, run as serve
from x402sim.world.transport.faults import Fault, read_fault
from x402sim.world.ui import PATH, PageFeed

MOST_ENTRIES = 4_000
"""The events that are kept without --out: of about 500 payments."""


def watch(
    upstream: Annotated[
        str | None,
        typer.Option(help="Service to stand before: its base URL.", metavar="URL"),
    ] = None,
    facilitator: Annotated[
        str | None,
        typer.Option(
            help="Facilitator to stand before; give your shop the URL that is printed.",
            metavar="URL",
        ),
    ] = None,
    host: common.Host = "127.0.0.1",
    port: common.Port = 4030,
    facilitator_port: Annotated[
        int,
        typer.Option(
            help="Port of the facilitator's proxy; 0 picks a free one.",
            parser=common.within(0, 65535),
            metavar="PORT",
        ),
    ] = 4031,
    page_port: Annotated[
        int,
        typer.Option(
            help="Port of the live page, on 127.0.0.1; 0 picks a free one.",
            parser=common.within(0, 65535),
            metavar="PORT",
        ),
    ] = 4032,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Record into this file, a journal: `open`, `diff` and `Run.load` read it. "
            f"Without it the newest {MOST_ENTRIES} events are kept.",
            metavar="FILE",
        ),
    ] = None,
    rpc: Annotated[
        str | None,
        typer.Option(
            help="JSON-RPC of the chain's node: record the transaction of each receipt.",
            metavar="URL",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="Network whose token's units the recording states. [default: 6 decimals]",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    network_file: common.NetworkFile = None,
    allow_mainnet: Annotated[
        bool,
        typer.Option(
            "--allow-mainnet",
            help="Record payments on main networks, too, without their signatures.",
        ),
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help='Fault as JSON, repeatable, on test networks only, such as {"victim": '
            '"service", "does": "lose answer", "contains": "payment"}.',
            metavar="JSON",
        ),
    ] = None,
    seed: common.RandomSeed = 0,
    keep_host: Annotated[
        bool,
        typer.Option("--keep-host", help="Pass `Host` on as it came, and not the upstream's."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with the URLs when ready.")
    ] = False,
    log: common.LogForm = "text",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log requests without payments, too.")
    ] = False,
    quiet: common.Quiet = False,
) -> None:
    """Record the payments that pass to a service or a facilitator."""
    sides = {"service": (upstream, port), "facilitator": (facilitator, facilitator_port)}
    with common.starting(None):
        if not upstream and not facilitator:
            raise ValueError("--upstream URL or --facilitator URL is what to stand before")
        faults = tuple(map(_fault, fault or ()))
        for each in faults:
            if not (sides.get(each.victim) or ("", 0))[0]:
                raise ValueError(f"--fault: nothing stands before {each.victim!r} here")
        known, chosen = known_networks(network_file), choose_network(network, network_file)
        upstreams = {part: Upstream.at(url) for part, (url, _) in sides.items() if url}
        with ExitStack() as opened:
            places = {
                part: (to, *_listening(host, sides[part][1], opened))
                for part, to in upstreams.items()
            }
            page_sock, page_url = _listening("127.0.0.1", page_port, opened)
            journal = _journal(out)
            opened.pop_all()  # they stay open: the servers close them
    first = next(iter(places.values()))
    begun = _begin(str(first[0].url), chosen, named=network is not None)
    journal.record(begun.start_ms, begun)
    form = common.log_form(log, verbose=verbose, quiet=quiet)
    lines = _Log(form, known) if form else None
    http = httpx.AsyncClient(timeout=20)
    chain = EvmChain(LinkedNode(OverClient(http), rpc), chosen, Clock()) if rpc else None
    recorder = Recorder(
        journal,
        known,
        allow_mainnet=allow_mainnet,
        faults=faults,
        seed=seed,
        chain=chain,
        log=lines.add if lines else lambda _: None,
        say=lambda text: typer.echo(f"x402sim: {printable(text)}", err=True),
    )
    feed = PageFeed(journal)
    page = watched_page(journal, feed, title=first[0].url, origin=first[2])
    server = Server(
        own_programs_only(page, (), is_local=True),
        lambda: started(),
        on_stop=feed.stop,
    )

    def started() -> None:
        common.stop_on_signals(server)
        urls = {part: url for part, (_, _, url) in places.items()}
        if as_json:
            ready = {"event": "ready", "service": None, "facilitator": None, **urls}
            typer.echo(json.dumps({**ready, "page": page_url + PATH}))
            return
        for part, (to, _, url) in places.items():
            typer.echo(f"{part:<12} {url} -> {to.url}")
        typer.echo(f"{'page':<12} {page_url}{PATH}\nCtrl-C stops it.")

    async def main() -> None:
        proxies = []
        try:
            for part, (to, sock, _) in places.items():
                proxy = Proxy(to, recorder.to(part), number=recorder.number, keep_host=keep_host)
                proxies.append(proxy)
                await proxy.start(sock)
            await server.serve(sockets=[page_sock])
        finally:
            for proxy in proxies:
                await proxy.close()
            await recorder.close()
            await http.aclose()
            why = f"{recorder.wrong} findings say what is wrong" if recorder.wrong else ""
            end = events.End(outcome="failed" if why else "passed", reason=why)
            journal.record(Clock().now_ms(), end)
            journal.close()
            if lines:
                lines.close()

    serve(main())
    if not as_json:
        typer.echo("stopped" + (f"; the recording is in {out}" if out else ""))


def _fault(text: str) -> Fault:
    """Return a fault that is given as JSON; raises `ValueError`."""
    found = read_fault(decoded(text.encode()))
    if found.does.startswith("crash"):
        raise ValueError(f"--fault: {found.does!r} ends a process, and watch runs none")
    return found


def _listening(host: str, port: int, opened: ExitStack) -> tuple[socket.socket, str]:
    listen = Listen(host=host, port=port, control_token=None)
    sock = opened.enter_context(listening_socket(listen))
    return sock, base_url(listen, sock)


def _journal(out: Path | None) -> Journal:
    if out is not None and out.exists():
        raise ValueError(f"--out {out}: it exists, and may be a recording; give another name")
    try:
        return Journal(file=out) if out else Journal(MOST_ENTRIES)
    except OSError as error:
        raise ValueError(f"--out {out}: {error.strerror}") from error


def _begin(upstream: str, network: Network, *, named: bool) -> events.Begin:
    """Return the first event; of a network that nobody named, only the units are said."""
    return events.Begin(
        scenario="watch",
        title=f"What passed to {upstream}",
        seed=0,
        start_ms=Clock().now_ms(),
        network=network.name if named else "",
        decimals=network.decimals,
        symbol=network.token_symbol if named else "tokens",
        upstream=upstream,
    )


class _Log:
    """Writes a line for each payment in a thread, so that a slow reader delays no request."""

    def __init__(self, form: Form, known: Any) -> None:
        self._form, self._known = form, known
        self._format: Callable[[LogLine], str] = as_json if form.is_json else as_text
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="x402sim log", daemon=True)
        self._thread.start()

    def add(self, seen: Seen) -> None:
        """Log an exchange, if it is about a payment, failed, or if all are wanted."""
        exchange, found = seen.exchange, seen.messages
        if not (found.is_payment or exchange.broke or self._form.is_verbose):
            return
        line = LogLine(
            time=local_time(exchange.ended, is_long=self._form.is_json),
            who=short(seen.payer) if seen.payer and not seen.is_hidden else exchange.client,
            method=found.method,
            path=f"/facilitator{found.target}" if found.to == "facilitator" else found.target,
            status=None if exchange.broke else found.status,
            ms=(exchange.ended - exchange.began) * 1000,
            error=exchange.broke or None,
        )
        if seen.is_hidden:
            line.notes.append(HIDDEN)
        else:
            line.notes += self._said(seen)
        self._lines.put(self._format(line))

    def _said(self, seen: Seen) -> list[str]:
        """Return what was offered, paid and refused, and what is wrong."""
        found, notes = seen.messages, []
        if not found.is_paying:
            offers = (
                f"offers {self._money(way.amount, way.fields.get('network'))} "
                f"to {short(str(way.fields.get('payTo')))}"
                for way in found.ways
            )
            notes += list(dict.fromkeys(offers))[:5]
        if found.signed is not None:
            auth = found.signed.authorization
            amount = self._money(str(auth.value), found.signed.network)
            notes.append(f"signed {amount} to {short(checksum(auth.to))}")
        if found.settled:
            notes.append(f"settled, transaction {short(str(found.tx_hash))}")
        elif found.signed is not None and found.refusal:
            notes.append(f"refused: {found.refusal}")
        elif found.to == "facilitator" and found.is_valid:
            notes.append("valid")
        struck = seen.exchange.struck
        if struck is not None and not seen.exchange.broke:
            notes.append(f'fault: "{struck.does}"')
        notes += [
            f"{each.mark}: {each.about}: {each.seen}; wanted: {each.wanted}. {each.do}"
            for each in seen.findings
        ]
        return notes

    def _money(self, base: Any, name: Any) -> str:
        network = network_called(name, self._known)
        text = printable(str(base))[:40]
        if network is None or not text.isdecimal():
            return f"{text} base units on {printable(str(name))[:40]}"
        return f"{to_decimal(int(text), network.decimals)} {network.token_symbol} on {network.name}"

    def close(self) -> None:
        """Write what is left, in a second at most."""
        self._lines.put("")
        self._thread.join(1)

    def _write(self) -> None:
        with suppress(OSError):  # nobody reads any more
            while text := self._lines.get():
                self._form.write(text.encode())
