"""`watch`: a recording reverse proxy before a service, a facilitator, or both."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import httpx
import typer

from x402sim import events
from x402sim.chain.node.evm_chain import EvmChain, LinkedNode
from x402sim.clock import Clock
from x402sim.commands import common
from x402sim.http.exchange import OverClient
from x402sim.journal import Journal
from x402sim.protocol.messages import decoded
from x402sim.protocol.networks import Network, choose_network, known_networks
from x402sim.report.page import of_journal, of_recording
from x402sim.report.reading import end_of_recording
from x402sim.serving.listen import Listen, base_url, listening_socket, own_programs_only
from x402sim.serving.log import LogThread
from x402sim.serving.page import PATH, PageFeed, journal_page
from x402sim.serving.serve import Server, run as serve
from x402sim.text.words import printable
from x402sim.watch.again import sending
from x402sim.watch.proxy import Proxy, Upstream
from x402sim.watch.recorder import Recorder, Seen, line_of
from x402sim.world.faults import Fault, read_fault

MOST_ENTRIES = 4_000
"""Events kept without --out: about 500 payments."""
_Upstream = Annotated[
    str | None, typer.Option(help="Base URL of the service to record.", metavar="URL")
]
_Facilitator = Annotated[
    str | None,
    typer.Option(
        help="Facilitator to record; give your shop the printed URL instead.",
        metavar="URL",
    ),
]
_Port = Annotated[
    int,
    common.port("Port of the service's proxy; facilitator's proxy and page take the next two"),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        help="Write a journal, for `open`, `diff` and `Run.load`; else only the newest "
        f"{MOST_ENTRIES} events are kept.",
        metavar="FILE",
    ),
]
_Rpc = Annotated[
    str | None,
    typer.Option(
        help="Node of the chain: record the transaction of each receipt, too.",
        metavar="URL",
    ),
]
_NetworkName = Annotated[
    str | None,
    typer.Option(
        help="Network of the token's name and decimals. [default: 6 decimals]",
        metavar="NAME",
        show_default=False,
    ),
]
_AllowMainnet = Annotated[
    bool,
    typer.Option(
        "--allow-mainnet",
        help="Record payments of real money, too, without their signatures.",
    ),
]
_Faults = Annotated[
    list[str] | None,
    typer.Option(
        help='Fault, repeatable: {"victim": "service", "does": "lose answer", "contains": '
        '"payment"}.',
        metavar="JSON",
    ),
]
_KeepHost = Annotated[
    bool,
    typer.Option("--keep-host", help="Forward the client's `Host`, not the upstream's."),
]
_Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also log requests without payments.")
]


def watch(
    upstream: _Upstream = None,
    facilitator: _Facilitator = None,
    host: common.Host = "127.0.0.1",
    port: _Port = 4030,
    out: _Out = None,
    rpc: _Rpc = None,
    network: _NetworkName = None,
    network_file: common.NetworkFile = None,
    allow_mainnet: _AllowMainnet = False,
    fault: _Faults = None,
    keep_host: _KeepHost = False,
    as_json: common.ReadyJson = False,
    log: common.LogForm = "text",
    verbose: _Verbose = False,
    quiet: common.Quiet = False,
) -> None:
    """Record the payments that pass to a service or a facilitator."""
    ports = (port, port + 1, port + 2) if port else (0, 0, 0)
    sides = {"service": (upstream, ports[0]), "facilitator": (facilitator, ports[1])}
    with common.starting(None), ExitStack() as opened:
        if not upstream and not facilitator:
            raise ValueError("nothing to record: give --upstream URL, --facilitator URL, or both")
        faults = tuple(map(_fault, fault or ()))
        for each in faults:
            if not (sides.get(each.victim) or ("", 0))[0]:
                raise ValueError(f"--fault: watch does not record {each.victim!r} here")
        known, chosen = known_networks(network_file), choose_network(network, network_file)
        upstreams = {part: Upstream.at(url) for part, (url, _) in sides.items() if url}
        places = {part: (host, sides[part][1]) for part in upstreams}
        places["page"] = "127.0.0.1", ports[2]
        socks, urls = {}, {}
        for part, (address, number) in places.items():
            listen = Listen(host=address, port=number)
            socks[part] = opened.enter_context(listening_socket(listen))
            urls[part] = base_url(listen, socks[part])
        journal = _journal(out)
        opened.pop_all()  # keeps the sockets open: the servers close them
    first, to = next(iter(upstreams.items()))
    begin = _begin(to.url, chosen, named=network is not None)
    journal.record(begin.start_ms, begin)
    words = of_journal(journal, to.url) | of_recording(begin, known)
    words |= {"label": "watching", "origin": urls[first], "sends": True}
    feed = PageFeed(journal)
    again = sending({part: urls[part] for part in upstreams})
    page = own_programs_only(journal_page(lambda: words, feed, [again]), (), is_local=True)
    form = common.log_form(log, verbose=verbose, quiet=quiet)
    thread = LogThread(form.write) if form else None

    def log_exchange(seen: Seen) -> None:
        if form and thread and (line := line_of(seen, form, known)):
            thread.put(form.text_of(line).encode())

    http = httpx.AsyncClient(timeout=20)
    recorder = Recorder(
        journal,
        known,
        allow_mainnet=allow_mainnet,
        faults=faults,
        chain=EvmChain(LinkedNode(OverClient(http), rpc), chosen, Clock()) if rpc else None,
        log=log_exchange,
        say=lambda text: typer.echo(f"x402sim: {printable(text)}", err=True),
    )

    def started() -> None:
        common.stop_on_signals(server)
        page_url = urls.pop("page") + PATH
        if as_json:
            ready = {"event": "ready", "service": None, "facilitator": None, **urls}
            typer.echo(json.dumps({**ready, "page": page_url}))
            return
        for part, url in urls.items():
            typer.echo(f"{part:<12} {url} -> {upstreams[part].url}")
        typer.echo(f"{'page':<12} {page_url}\nCtrl-C stops it.")

    server = Server(page, started, on_stop=feed.stop)

    async def main() -> None:
        proxies = []
        try:
            for part, to in upstreams.items():
                proxy = Proxy(to, recorder, number=recorder.number, to=part, keep_host=keep_host)
                proxies.append(proxy)
                await proxy.start(socks[part])
            await server.serve(sockets=[socks["page"]])
        finally:
            for proxy in proxies:
                await proxy.close()
            await recorder.close()
            await http.aclose()
            journal.record(Clock().now_ms(), end_of_recording(recorder.wrong))
            journal.close()
            if thread:
                thread.close()

    serve(main())
    if not as_json:
        typer.echo("stopped" + (f"; the recording is in {out}" if out else ""))


def _fault(text: str) -> Fault:
    found = read_fault(decoded(text.encode()))
    if found.does.startswith("crash"):
        raise ValueError(f"--fault: {found.does!r} stops a process, and watch has none to stop")
    return found


def _journal(out: Path | None) -> Journal:
    if out is not None and out.exists():
        raise ValueError(f"--out {out}: the file exists, perhaps a recording; give another name")
    try:
        return Journal(file=out) if out else Journal(MOST_ENTRIES)
    except OSError as error:
        raise ValueError(f"--out {out}: {error.strerror}") from error


def _begin(upstream: str, network: Network, *, named: bool) -> events.Begin:
    """Return the first event; without --network, it states only the token's decimals."""
    return events.Begin(
        scenario="watch",
        title=f"Recording of {upstream}",
        seed=0,
        start_ms=Clock().now_ms(),
        network=network.name if named else "",
        decimals=network.decimals,
        symbol=network.token_symbol if named else "tokens",
        upstream=upstream,
    )
